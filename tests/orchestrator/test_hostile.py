"""What strangers, slow clients, a full disk and a glance at the lock could break, tried on real services."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from comfy_env.orchestrator import server as serving
from comfy_env.orchestrator import tabs
from comfy_env.orchestrator.instance import Instance, is_served
from comfy_env.orchestrator.problems import Owned
from comfy_env.orchestrator.store import Row
from comfy_env.orchestrator.tabs import Tab

from .kit import run, until
from .town import Town, town

pytestmark = pytest.mark.deadline(120)
FULL = Path(__file__).with_name("full.py")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path) as here:
        here.start()
        here.session()
        yield here


# ---- strangers


def asked(here: Town, line: bytes, headers: bytes = b"", body: bytes = b"", token: bool = True) -> bytes:
    """Send a request as bytes and return the first line of the answer."""
    given = [line + b" HTTP/1.1", b"Host: 127.0.0.1:%d" % here.address[1], b"Connection: close", headers]
    given += [b"Authorization: Bearer " + here.token.encode()] if token else []
    given += [b"Content-Type: application/json", b"Content-Length: %d" % len(body)] if body else []
    with socket.create_connection(here.address, timeout=20) as connection:
        connection.sendall(b"\r\n".join(filter(None, given)) + b"\r\n\r\n" + body)
        return connection.makefile("rb").readline().strip()


def test_nonsense_is_refused_and_is_no_failure_of_the_service(here: Town):
    bad = b"400 Bad Request"
    assert b"403" in asked(here, b"GET /api/state", b"Authorization: Bearer \xff\xfe", token=False)
    assert b"403" in asked(here, b"GET /api/state", b"Cookie: comfy_env_device=\xff\xfe", token=False)
    assert b"403" in asked(here, b"POST /auth/exchange", body=b'{"code": "\\ud800"}', token=False)
    for after in (b"9" * 30, b"%C2%B2", b"-1", b"x"):
        assert bad in asked(here, b"GET /api/events?after=" + after)
    assert bad in asked(here, b"POST /api/messages", body=b'{"session": "s", "id": "1", "text": "\\ud800"}')
    assert bad in asked(here, b"POST /api/sessions", body=b'{"session": "\\ud800", "agent": "echo"}')
    assert bad in asked(here, b"POST /api/messages", body=b"[" * 200_000)
    assert bad in asked(here, b"POST /api/do/nothing", body=b"{}")
    assert b"413" in asked(here, b"POST /api/messages", body=b'{"text": "' + b"x" * (2 << 20) + b'"}')
    assert "Traceback" not in here.words() and here.get("/health")["generation"] == 1


# ---- slow clients


def web_socket(here: Town) -> socket.socket:
    """Open a web socket that is welcome and never reads."""
    connection = socket.create_connection(here.address, timeout=20)
    lines = [
        "GET /ws HTTP/1.1", f"Host: 127.0.0.1:{here.address[1]}", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}", "Sec-WebSocket-Version: 13",
        f"Authorization: Bearer {here.token}",
    ]
    hello = json.dumps({"kind": "hello", "v": 1}).encode()
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + bytes([0x81, 0x80 | len(hello), 0, 0, 0, 0]) + hello)
    connection.recv(12)
    return connection


def test_clients_that_neither_speak_nor_read_do_not_keep_the_service_from_ending(here: Town, record_property):
    with closing(web_socket(here)), socket.create_connection(here.address), socket.create_connection(here.address) as half:
        half.sendall(b"POST /api/messages HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % here.address[1])
        half.sendall(b"Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{" % here.token.encode())
        here.get("/api/state")
        begun = time.monotonic()
        os.kill(here.owner["pid"], signal.SIGTERM)
        assert here.first.wait(60) == 0
        seconds = time.monotonic() - begun
    record_property("seconds", f"{seconds:.2f}")
    assert seconds < 20, "it waited for a client"


def test_a_connection_that_asks_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(serving, "SILENT_SECONDS", 0.2)

    async def story():
        server = serving.Server(None)
        await server.start()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        server.take(theirs)
        with closing(ours):
            assert await asyncio.get_running_loop().sock_recv(ours, 1) == b""
        await server.drain(1.0)

    run(story)


class Deaf:
    """A web socket whose client never reads."""

    closed = False

    def __init__(self) -> None:
        self.code = 0

    async def send_str(self, data: str) -> None:
        await asyncio.Event().wait()

    async def close(self, *, code: int = 1000, message: bytes = b"") -> None:
        self.closed, self.code = True, code


@pytest.mark.parametrize("what", ["many frames", "long frames", "much that is late"])
def test_what_waits_for_a_client_that_does_not_read_is_bounded(what: str, monkeypatch):
    monkeypatch.setattr(tabs, "MOST_CHARACTERS", 10_000)

    async def story():
        tab = Tab(deaf := Deaf())
        await asyncio.sleep(0)
        for seq in range(2 * tabs.MOST_WAITING):
            if what == "much that is late":
                tab.show(Row(seq, "s", None, "said", "{}", 0.0))
            else:
                tab.say("x" * 1000 if what == "long frames" else "x")
            if tab.sender.cancelling() if hasattr(tab.sender, "cancelling") else tab.sender.done():
                break
        await until(lambda: deaf.closed)
        assert deaf.code == tabs.LATER and tab._out.qsize() <= tabs.MOST_WAITING and len(tab.late) <= tabs.MOST_WAITING
        assert what != "long frames" or tab._out.qsize() < 20

    run(story)


# ---- a full disk


def test_on_a_full_disk_nothing_is_acknowledged_handed_over_or_lost(tmp_path: Path):
    with town(tmp_path, program=FULL) as here:
        here.environ["FULL_DISK"] = str(tmp_path / "disk")
        disk = tmp_path / "disk.full"
        here.start()
        here.session()
        disk.touch()
        status, answer = here.ask("POST", "/api/messages", {"session": "s", "id": "1", "text": "one"})
        assert status == 503 and answer["retry"] and "disk is full" in answer["why"]
        here.wait(lambda: [note for note in here.notes() if "messages are not accepted now" in note], 15, "people are told")
        here.do("restart")
        here.wait(lambda: [note for note in here.notes() if "could not be loaded" in note and "disk is full" in note], 15)
        assert here.attempts() == 0 and here.owner["generation"] == 1
        disk.unlink()
        here.send("one", id="1")
        here.do("restart")
        here.generation(2)
        here.wait(lambda: here.ends() and all(here.ends().values()), 30)
        assert here.served() == ["one"] and list(here.ends().values()) == [["done"]]


def test_a_disk_that_fills_during_the_handover_is_waited_for(tmp_path: Path):
    """The successor cannot take the store; nor can the old one, until there is room again."""
    with town(tmp_path, program=FULL) as here:
        here.environ["FULL_DISK"] = str(tmp_path / "disk")
        disk = tmp_path / "disk.full"
        disk.with_suffix(".fills").touch()
        here.start()
        here.session()
        here.do("restart")
        here.wait(lambda: "cannot be taken back yet" in here.words(), 40)
        disk.unlink()
        here.wait(lambda: "(TakenBack)" in here.words(), 40, "it serves again")
        assert [note for note in here.notes() if "could not be loaded" in note and "disk is full" in note]
        here.send("after")
        here.wait(lambda: here.served() == ["after"], 30)


def test_a_start_on_a_full_disk_is_refused_with_78(tmp_path: Path):
    with town(tmp_path, program=FULL) as here:
        here.state.mkdir()
        (tmp_path / "disk.full").touch()
        given = {**here.environ, "FULL_DISK": str(tmp_path / "disk")}
        ended = subprocess.run(here.argv(), env=given, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 78 and "cannot be written: database or disk is full" in ended.stderr
        assert "Traceback" not in ended.stderr


# ---- the lock


def test_a_glance_at_the_lock_never_turns_a_start_away(tmp_path: Path):
    stop, looks = threading.Event(), []

    def glance() -> None:
        while not stop.is_set():
            looks.append(is_served(tmp_path))

    Instance.take(tmp_path).close()
    watcher = threading.Thread(target=glance, name="glances")
    watcher.start()
    try:
        for _ in range(300):
            Instance.take(tmp_path).close()
    finally:
        stop.set()
        watcher.join(10)
    assert False in looks


def test_a_lock_that_is_held_is_told_in_a_moment(tmp_path: Path):
    with closing(Instance.take(tmp_path)):
        begun = time.monotonic()
        with pytest.raises(Owned, match="which is just starting"):
            Instance.take(tmp_path)
        assert time.monotonic() - begun < 5
        assert is_served(tmp_path)
