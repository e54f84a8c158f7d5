"""Who may talk to the service: names, origins, tokens, one-time codes; and every door of a real one tried by strangers."""

from __future__ import annotations

import asyncio
import http.client
import stat
from pathlib import Path

import aiohttp
import pytest

from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator import auth, instance
from comfy_env.orchestrator.auth import Codes, Guard, digest

from .town import Town, town

GUARD = Guard("secret", "127.0.0.1", 8199)


@pytest.mark.parametrize("host", ["127.0.0.1:8199", "localhost:8199", "LOCALHOST:8199", "[::1]:8199"])
def test_our_own_names_are_served(host: str):
    assert GUARD.stranger(host, None) == "" == GUARD.stranger(host, f"http://{host}")


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:8199",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1.evil.example:8199",
        "localhost@evil:8199",
        "user@localhost:8199",
        "[::1",
        "localhost:port",
        "0.0.0.0:8199",
        "192.168.0.7:8199",
    ],
)
def test_a_foreign_host_is_refused(host: str | None):
    assert GUARD.stranger(host, None)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost",
        "http://localhost:8188",
        "https://evil.example:8199",
        "file://",
        "localhost:8199",
        "http://localhost:8199.evil.example",
        "chrome-extension://abc",
    ],
)
def test_a_foreign_origin_is_refused(origin: str):
    assert GUARD.stranger("localhost:8199", origin)


def test_a_named_address_is_served_too_and_everywhere_means_local_names():
    assert Guard("s", "192.168.0.7", 1).stranger("192.168.0.7:1", None) == ""
    assert Guard("s", "fd00::1", 1).stranger("[fd00::1]:1", None) == ""
    assert Guard("s", "0.0.0.0", 1).stranger("192.168.0.7:1", None) and Guard("s", "0.0.0.0", 1).stranger("localhost:1", None) == ""


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "Basic secret", "secret", "Bearer secret2"])
def test_without_the_token_nobody_is_known(header: str | None):
    assert GUARD.unknown(header, None)


def test_the_token_or_a_devices_cookie_is_enough():
    guard = Guard("secret", "127.0.0.1", 8199, {digest("device")})
    assert guard.unknown("Bearer secret", None) == "" == guard.unknown("bearer  secret", None)
    name = guard.cookie
    assert guard.unknown(None, f"other=1; {name}=device") == ""
    assert guard.unknown(None, f"{name}=other") and guard.unknown(None, "broken;;;=") and guard.unknown(None, f"{name}=")


def test_two_services_of_one_host_do_not_take_each_others_cookie():
    """A browser sends a cookie to every port of a host, and keeps one of each name."""
    one, other = (Guard("secret", "127.0.0.1", port, {digest(f"device-{port}")}) for port in (8199, 8200))
    jar = f"{one.cookie}=device-8199; {other.cookie}=device-8200"
    assert one.unknown(None, jar) == "" == other.unknown(None, jar)


def test_at_a_schemes_own_port_browsers_leave_it_out():
    guard = Guard("s", "127.0.0.1", 80)
    assert guard.stranger("localhost", "http://localhost") == "" == guard.stranger("localhost:80", None)
    assert guard.stranger("localhost:8199", None) and guard.stranger("localhost", "https://localhost")


def test_a_code_works_once_and_for_two_minutes():
    now = [0.0]
    codes = Codes(lambda: now[0])
    first, second = codes.issue(), codes.issue()
    assert codes.redeem(first) and not codes.redeem(first)
    now[0] = 120.1
    assert not codes.redeem(second)


def test_guessing_codes_is_stopped_and_ends():
    now = [0.0]
    codes = Codes(lambda: now[0])
    good = codes.issue()
    for number in range(auth.MOST_MISSES):
        assert not codes.redeem(f"guess {number}")
    assert not codes.redeem(good), "a good code works in the middle of guessing"
    now[0] = 121.0
    assert codes.redeem(codes.issue())


def test_the_number_of_open_codes_is_bounded():
    codes = Codes(lambda: 0.0)
    issued = [codes.issue() for _ in range(auth.MOST_CODES + 1)]
    assert not codes.redeem(issued[0]) and codes.redeem(issued[-1])


def test_the_token_is_made_once_and_only_this_user_can_read_it(tmp_path: Path):
    assert auth.token(tmp_path) == auth.token(tmp_path) and len(auth.token(tmp_path)) > 30
    assert stat.S_IMODE((tmp_path / auth.TOKEN_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("half", ["", "\n", "abc", "\xff"])
def test_a_token_file_that_was_half_written_lets_nobody_in_and_is_made_anew(tmp_path: Path, half: str):
    (tmp_path / auth.TOKEN_FILE).write_text(half, encoding="latin-1")
    made = auth.token(tmp_path)
    assert len(made) > 30 and auth.known_token(tmp_path) == made
    assert stat.S_IMODE((tmp_path / auth.TOKEN_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("planted", ["open to others", "a link"])
def test_a_token_that_others_may_know_is_made_anew(tmp_path: Path, planted: str):
    path, known = tmp_path / auth.TOKEN_FILE, "known to somebody else, and long enough"
    if planted == "a link":
        (tmp_path / "elsewhere").write_text(known)
        (tmp_path / "elsewhere").chmod(0o600)
        path.symlink_to("elsewhere")
    else:
        path.write_text(known)
        path.chmod(0o640)
    made = auth.token(tmp_path)
    assert made not in ("", known) and made == auth.known_token(tmp_path) == auth.token(tmp_path)
    assert not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [auth.TOKEN_FILE, instance.LOCK])
def test_a_state_folder_that_cannot_be_used_is_told_with_what_to_do(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    with pytest.raises(ComfyEnvError, match="cannot be used: .*" + name) as told:
        instance.Instance.take(tmp_path).close()
        auth.token(tmp_path)
    assert "--state" in told.value.hint


def test_a_guard_without_a_token_lets_nobody_in():
    assert Guard("", "127.0.0.1", 1).unknown("Bearer ", None) and Guard("", "127.0.0.1", 1).unknown("bearer", "")


def test_asking_for_the_token_makes_none(tmp_path: Path):
    assert auth.known_token(tmp_path) == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("secret", ["\udcff\udcfe", "\ud800", "ü" * 40])
def test_a_secret_that_is_no_text_is_wrong_and_no_failure(secret: str):
    guard = Guard("t" * 43, "127.0.0.1", 1)
    assert guard.unknown(f"Bearer {secret}", f"{guard.cookie}={secret}")
    assert not Codes().redeem(secret)


# ---- every door of a real service

DOORS = [
    ("GET", "/health"),
    ("GET", "/api/state"),
    ("GET", "/api/sessions"),
    ("POST", "/api/sessions"),
    ("POST", "/api/messages"),
    ("GET", "/api/events"),
    ("POST", "/api/do/stop"),
    ("POST", "/auth/code"),
    ("POST", "/auth/exchange"),
    ("GET", "/ws"),
    ("GET", "/nowhere"),
]


def ask(here: Town, method: str, path: str, **headers: str | None) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection(*here.address, timeout=10)
    try:
        connection.putrequest(method, path, skip_host=True)
        given = {"Host": f"127.0.0.1:{here.address[1]}", "Authorization": f"Bearer {here.token}", **headers}
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        return answer.status, dict(answer.getheaders())
    finally:
        connection.close()


@pytest.mark.deadline(120)
def test_strangers_get_403_at_every_door_and_a_code_opens_them_across_restarts(tmp_path: Path):
    with town(tmp_path) as here:
        here.start()
        for method, path in DOORS:
            assert ask(here, method, path, Origin="http://evil.example")[0] == 403, f"foreign origin at {path}"
            assert ask(here, method, path, Origin="null")[0] == 403, f"no origin at {path}"
            assert ask(here, method, path, Host="evil.example")[0] == 403, f"foreign host at {path}"
            if path not in ("/health", "/auth/exchange"):
                assert ask(here, method, path, Authorization=None)[0] == 403, f"no token at {path}"
                assert ask(here, method, path, Authorization="Bearer wrong")[0] == 403, f"wrong token at {path}"
        assert ask(here, "GET", "/health", Authorization=None)[0] == 200
        assert ask(here, "GET", "/api/state")[0] == 200
        cookie = _exchanged(here)
        assert ask(here, "GET", "/api/state", Authorization=None, Cookie=cookie)[0] == 200
        here.do("restart")
        here.generation(2)
        assert ask(here, "GET", "/api/state", Authorization=None, Cookie=cookie)[0] == 200, "a device was forgotten"
        asyncio.run(_web_sockets(here))


def _exchanged(here: Town) -> str:
    status, document = here.ask("POST", "/auth/code", {})
    assert status == 200
    plain = {"Content-Type": "application/json"}
    assert here.ask("POST", "/auth/exchange", {"code": "wrong"}, plain)[0] == 403
    connection = http.client.HTTPConnection(*here.address, timeout=10)
    connection.request("POST", "/auth/exchange", f'{{"code": "{document["code"]}"}}', plain)
    answer = connection.getresponse()
    answer.read()
    cookie = answer.getheader("Set-Cookie") or ""
    connection.close()
    assert answer.status == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert here.ask("POST", "/auth/exchange", document, plain)[0] == 403, "a code works twice"
    return cookie.split(";")[0]


async def _web_sockets(here: Town) -> None:
    url = f"ws://127.0.0.1:{here.address[1]}/ws"
    token = {"Authorization": f"Bearer {here.token}"}
    async with aiohttp.ClientSession() as web:
        for headers in ({}, {**token, "Origin": "http://evil.example"}, {**token, "Host": "evil.example"}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await web.ws_connect(url, headers=headers)
            assert caught.value.status == 403
        async with web.ws_connect(url, headers=token) as ws:
            await ws.send_json({"kind": "msg", "session": "s", "id": "1", "text": "before hello"})
            assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
