"""Accepting: every connection is handed over once, stopping loses none, want of descriptors is survived, the flag stays."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator import listener as listening
from comfy_env.orchestrator.listener import Acceptor, bind, from_supervisor, inherited


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with bind("127.0.0.1", 0, 1) as found:
        yield found


class Taken:
    """Hears what was accepted."""

    def __init__(self) -> None:
        self.connections: list[socket.socket] = []

    def __call__(self, connection: socket.socket) -> None:
        self.connections.append(connection)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


def connected(listener: socket.socket) -> socket.socket:
    return socket.create_connection(listener.getsockname(), timeout=5)


def test_what_was_accepted_is_handed_over_before_stop_returns(listener: socket.socket, eventually: Callable):
    for _ in range(20):
        taken = Taken()
        acceptor = Acceptor(listener, taken)
        acceptor.start()
        clients = [connected(listener) for _ in range(10)]
        eventually(lambda taken=taken: taken.connections)
        acceptor.stop()
        handed = len(taken.connections)
        other = Taken()
        successor = Acceptor(listener, other)
        successor.start()
        eventually(lambda handed=handed, other=other: handed + len(other.connections) == 10, what="the successor serves the rest")
        successor.stop()
        assert len(taken.connections) == handed
        for each in (*clients, taken, other):
            each.close()


def test_connections_wait_while_nobody_accepts(listener: socket.socket, eventually: Callable):
    clients = [connected(listener) for _ in range(100)]
    taken = Taken()
    acceptor = Acceptor(listener, taken)
    acceptor.start()
    eventually(lambda: len(taken.connections) == 100)
    acceptor.stop()
    for each in (*clients, taken):
        each.close()


def test_start_and_stop_may_be_said_twice(listener: socket.socket):
    acceptor = Acceptor(listener, lambda connection: None)
    acceptor.start()
    acceptor.start()
    assert [thread.name for thread in threading.enumerate()].count("comfy-env accept") == 1
    acceptor.stop()
    acceptor.stop()
    assert not acceptor.running


def test_without_a_descriptor_it_rests_and_goes_on(listener: socket.socket, eventually: Callable, monkeypatch, caplog):
    monkeypatch.setattr(listening, "REST", 0.02)
    taken = Taken()
    acceptor = Acceptor(listener, taken)
    acceptor.start()
    client = socket.socket()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filled: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 400), hard))
        with pytest.raises(OSError):
            while True:
                filled.append(os.dup(0))
        client.connect(listener.getsockname())
        eventually(lambda: "cannot be accepted now" in caplog.text)
        assert taken.connections == []
    finally:
        for fd in filled:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    eventually(lambda: len(taken.connections) == 1)
    acceptor.stop()
    client.close()
    taken.close()


CHILD = """
import os, socket, sys
sys.path.insert(0, sys.argv[2])
from comfy_env.orchestrator.listener import Acceptor, inherited
listener = inherited(int(sys.argv[1]))
print(os.get_blocking(listener.fileno()), os.get_inheritable(listener.fileno()), flush=True)
acceptor = Acceptor(listener, lambda connection: (connection.sendall(b"child"), connection.close()))
acceptor.start()
sys.stdin.read()
acceptor.stop()
"""


def test_a_child_that_inherits_it_leaves_the_shared_flag_alone_and_serves(listener: socket.socket):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(listening.__file__))))
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(listener.fileno()), root],
        pass_fds=(listener.fileno(),),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline().split() == ["False", "False"]
        with connected(listener) as client:
            assert client.recv(10) == b"child"
        assert not os.get_blocking(listener.fileno())
        child.stdin.close()
        child.wait(10)


def test_a_taken_port_is_tried_for_a_while_and_then_told(listener: socket.socket):
    port = listener.getsockname()[1]
    with pytest.raises(ComfyEnvError, match="cannot be listened on: Address already in use") as caught:
        bind("127.0.0.1", port, 0.2)
    assert "--port" in caught.value.hint
    threading.Timer(0.3, listener.close).start()
    with bind("127.0.0.1", port, 5) as found:
        assert found.getsockname()[1] == port


@pytest.mark.parametrize(("fds", "pid"), [("", ""), ("1", "99"), ("0", "7"), ("x", "7"), ("1", "")])
def test_a_supervisors_socket_meant_for_somebody_else_is_not_taken(fds: str, pid: str):
    assert from_supervisor(fds, pid, 7) is None


def test_a_blocking_socket_of_a_supervisor_is_made_non_blocking():
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        given.listen(1)
        with inherited(os.dup(given.fileno())) as found:
            assert not os.get_blocking(found.fileno()) and not os.get_inheritable(found.fileno())
