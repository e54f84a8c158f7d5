"""A worker is let in by a mutual proof; whoever else comes is dropped, and joining goes on."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from comfy_env.errors import DiedBeforeJoining, TransportRefused
from comfy_env.transport import handshake
from comfy_env.transport.boot import boot_document
from comfy_env.transport.channel import SocketLane
from comfy_env.transport.handshake import join
from comfy_env.transport.listener import ListenerEndpoint
from comfy_env.values import ExitStatus
from comfy_env.worker.wire import proof
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind
from tests.nights import night_in
from tests.transport.workers import Started, interpreter, joined, make_launch, spawn, started, until

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_worker_of_each_python_joins_and_runs_a_function_by_name(version):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} answers here")
    with joined(python) as worker:
        assert worker.value("wire_pack:where")["version"] == [int(n) for n in version.split(".")]
        assert worker.lanes.hello["cache_tag"] == f"cpython-{version.replace('.', '')}"
        assert worker.stages == ["started", "authenticated", "ready"]


def test_the_worker_imports_nothing_that_is_not_standard():
    with joined() as worker:
        modules = worker.value("wire_pack:where")["modules"]
    foreign = {m.partition(".")[0] for m in modules} - sys.stdlib_module_names - {"comfy_env", "wire_pack", "__main__"}
    foreign = {m for m in foreign if not m.startswith(("_sysconfigdata", "__editable__", "_virtualenv", "sitecustomize"))}
    assert foreign <= {"distutils-precedence", "_distutils_hack", "a1_coverage"}


def test_an_interpreter_that_ends_at_once_is_told_in_milliseconds_with_its_status():
    with started(argv=[sys.executable, "-c", "import os; os._exit(7)"]) as worker:
        begun = time.monotonic()
        with pytest.raises(DiedBeforeJoining, match="status 7") as raised:
            join(worker.endpoint, worker.process, worker.launch)
        assert raised.value.pid == worker.process.pid
        assert time.monotonic() - begun < 2


def test_a_worker_killed_by_a_signal_before_joining_is_told_by_that_signal():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    with started(argv=[sys.executable, "-c", code]) as worker:
        with pytest.raises(DiedBeforeJoining, match="SIGSEGV"):
            join(worker.endpoint, worker.process, worker.launch)


def _join_in_thread(worker: Started) -> tuple[threading.Thread, list]:
    result: list = []

    def run() -> None:
        try:
            result.append(join(worker.endpoint, worker.process, worker.launch))
        except Exception as error:  # the test looks at whatever came
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, result


def test_a_silent_birth_ends_promptly_when_its_process_is_killed():
    with started(argv=[sys.executable, "-c", "import time; time.sleep(60)"]) as worker:
        thread, result = _join_in_thread(worker)
        worker.process.popen.kill()
        thread.join(5)
        assert isinstance(result[0], DiedBeforeJoining)
        assert "SIGKILL" in str(result[0])


def test_closing_the_endpoint_ends_a_join_that_waits():
    with started(argv=[sys.executable, "-c", "import time; time.sleep(60)"]) as worker:
        thread, result = _join_in_thread(worker)
        worker.endpoint.close()
        thread.join(5)
        assert isinstance(result[0], TransportRefused)


def test_closing_the_endpoint_ends_a_join_wherever_it_is():
    """A descriptor that another thread closed meanwhile is a ValueError to whoever asks the system about it."""
    for moment in range(40):
        with started(argv=[sys.executable, "-c", "import time; time.sleep(60)"]) as worker:
            thread, result = _join_in_thread(worker)
            time.sleep(moment / 20_000)
            worker.endpoint.close()
            thread.join(5)
            assert isinstance(result[0], TransportRefused), repr(result[0])


@pytest.mark.parametrize("wrong", [{"auth_key": "00" * 32}, {"nonce": "another"}, {"generation": 2}])
def test_a_worker_that_is_not_who_it_must_be_is_refused(wrong):
    with started(document=wrong) as worker:
        with pytest.raises((TransportRefused, DiedBeforeJoining)):
            join(worker.endpoint, worker.process, worker.launch)


def test_a_hello_that_names_another_environment_is_refused_by_name():
    with started(document={"env": "another"}) as worker:
        with pytest.raises(TransportRefused, match="its env is 'another'"):
            join(worker.endpoint, worker.process, worker.launch)


# ---------------------------------------------------------------- strangers on a listening endpoint

def test_a_worker_that_ends_while_the_host_sleeps_is_told_by_its_status(monkeypatch):
    night = night_in(monkeypatch, "transport.handshake")
    told = iter([None, None, None, ExitStatus(code=3)])

    def exit_status():
        night.pass_by()
        return next(told)

    endpoint = SimpleNamespace(closed=False, inherited=True)
    process = SimpleNamespace(pid=1, exit_handle=lambda: None, exit_status=exit_status)
    with pytest.raises(DiedBeforeJoining, match="exited with status 3"):
        handshake._Reception(endpoint, process, make_launch(endpoint))._turn_away(None, ValueError("its lane ended"))


@pytest.fixture
def listening(tmp_path):
    """A worker that must connect; strangers may connect before it is started."""
    endpoint = ListenerEndpoint(tmp_path)
    stages: list[str] = []
    launch = make_launch(endpoint, sign=stages.append)
    endpoint.write_boot(boot_document(launch, endpoint))
    yield endpoint, launch, stages
    endpoint.close()
    assert list(tmp_path.iterdir()) == []


def _connect(endpoint) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(endpoint.listener)
    return sock


def _join_after(endpoint, launch, strangers):
    process = spawn([*launch.argv, "--boot-file", str(endpoint.boot_file)], endpoint.child_fds)
    endpoint.child_started()
    try:
        worker = Started(process, launch, endpoint)
        worker.lanes = join(endpoint, process, launch)
        try:
            assert worker.value("wire_pack:echo", 5) == 5
            assert not endpoint.boot_file.exists()
        finally:
            worker.lanes.close()
        return [_is_dropped(s) for s in strangers]
    finally:
        process.end()


def _is_dropped(sock: socket.socket) -> bool:
    sock.settimeout(5)
    try:
        while sock.recv(4096):
            continue
    except ConnectionError:
        return True
    finally:
        sock.close()
    return True


@pytest.mark.row("X1")
def test_a_stranger_is_dropped_and_joining_goes_on(listening):
    endpoint, launch, _ = listening
    silent, garbage, gone = _connect(endpoint), _connect(endpoint), _connect(endpoint)
    garbage.sendall(secrets.token_bytes(4096))
    gone.close()
    assert _join_after(endpoint, launch, [silent, garbage]) == [True, True]


@pytest.mark.row("X1")
def test_a_stranger_with_a_wrong_key_is_dropped(listening):
    endpoint, launch, stages = listening
    sock = _connect(endpoint)
    lane = SocketLane(sock)
    lane.send(Frame(Kind.STAGE, payload=b'{"stage": "lies"}'))
    lane.send(Frame(Kind.CHALLENGE, payload=proof.challenge()))
    lane.send(Frame(Kind.RESPONSE, payload=proof.answer(b"wrong", proof.WORKER, 0, launch.nonce, 1, b"?")))
    assert _join_after(endpoint, launch, [sock]) == [True]
    assert "lies" not in stages


@pytest.mark.row("X1")
def test_a_connection_of_another_user_is_dropped_unheard(listening, monkeypatch):
    endpoint, _, _ = listening
    monkeypatch.setattr("comfy_env.transport.listener.os.getuid", lambda: 12345)
    sock = _connect(endpoint)
    assert endpoint.arrivals() == []
    assert _is_dropped(sock)


@pytest.mark.row("X1")
def test_a_recorded_answer_proves_nothing_on_another_connection(listening):
    endpoint, launch, _ = listening
    recorded = proof.answer(launch.auth_key, proof.WORKER, 0, launch.nonce, 1, proof.challenge())
    sock = _connect(endpoint)
    lane = SocketLane(sock)
    lane.send(Frame(Kind.CHALLENGE, payload=proof.challenge()))
    lane.send(Frame(Kind.RESPONSE, payload=recorded))
    assert _join_after(endpoint, launch, [sock]) == [True]


@pytest.mark.row("X1")
def test_a_reflected_answer_proves_nothing():
    key, asked = secrets.token_bytes(32), proof.challenge()
    mine = proof.answer(key, proof.HOST, 0, "nonce", 1, asked)
    assert proof.proves(mine, key, proof.HOST, "nonce", 1, asked)
    assert not proof.proves(mine, key, proof.WORKER, "nonce", 1, asked)


@pytest.mark.row("X1")
@pytest.mark.parametrize("change", [{"generation": 2}, {"nonce": "b"}, {"asked": b"other"}, {"key": b"k2"}])
def test_an_answer_is_bound_to_key_nonce_generation_and_challenge(change):
    facts = {"key": b"k1", "role": proof.WORKER, "nonce": "a", "generation": 1, "asked": b"this"}
    payload = proof.answer(facts["key"], facts["role"], 0, facts["nonce"], facts["generation"], facts["asked"])
    assert proof.proves(payload, **facts)
    assert not proof.proves(payload, **{**facts, **change})


def test_a_worker_turns_away_a_host_without_its_key():
    with started(document={"auth_key": "11" * 32}) as worker:
        lane = SocketLane(worker.endpoint.main)
        side = SocketLane(worker.endpoint.side)
        for end in (side, lane):
            end.send(Frame(Kind.CHALLENGE, payload=proof.challenge()))
            end.send(Frame(Kind.RESPONSE, payload=proof.answer(b"wrong", proof.HOST, 0, "x", 1, b"?")))
        status = until(worker.process.exit_status)
        assert status.code == 1
