"""A bare socket pair: one byte each way for a call, raw bytes for a tensor. The least that two processes can do."""

import json
import socket
import struct
import subprocess
import sys

import work
from driving import FOLDER, Driver

HEAD = struct.Struct("!IQ")
LOOP = f"import sys; sys.path.insert(0, {FOLDER!r}); import drive_socketpair; drive_socketpair.loop(int(sys.argv[1]))"


def send(sock, words, raw=b""):
    said = json.dumps(words).encode()
    sock.sendall(HEAD.pack(len(said), len(raw)) + said)
    if len(raw):
        sock.sendall(raw)


def receive(sock):
    said, raw = HEAD.unpack(_exactly(sock, HEAD.size))
    return json.loads(bytes(_exactly(sock, said))), _exactly(sock, raw) if raw else b""


def _exactly(sock, size):
    buffer = memoryview(bytearray(size))
    have = 0
    while have < size:
        got = sock.recv_into(buffer[have:])
        if not got:
            raise EOFError("the other end is gone")
        have += got
    return buffer


def loop(descriptor):
    sock = socket.socket(fileno=descriptor)
    while True:
        first = sock.recv(1, socket.MSG_PEEK)
        if first == b"n":
            sock.recv(1)
            sock.send(b"n")
            continue
        if not first:
            return
        (name, arguments), raw = receive(sock)
        if len(raw):
            arguments["tensor"] = tensor_of(raw)
        value = work.run(name, arguments)
        send(sock, *((None, bytes_of(value)) if hasattr(value, "numpy") else (value,)))


def tensor_of(raw):
    import torch

    return torch.frombuffer(raw, dtype=torch.float32)


def bytes_of(tensor):
    return memoryview(tensor.numpy()).cast("B")


class Peer(Driver):
    cannot = {
        "shared": "no shared memory", "import": "nothing to import",
        "stop": "closing the socket does not end a busy worker",
    }

    def __init__(self):
        self.socks, self.processes = {}, {}

    def start(self, number=0):
        self.socks[number], far = socket.socketpair()
        self.processes[number] = subprocess.Popen([sys.executable, "-c", LOOP, str(far.fileno())], pass_fds=(far.fileno(),))
        far.close()

    def call(self, function, number=0, **arguments):
        sock = self.socks[number]
        if function == "noop":
            sock.send(b"n")
            if not sock.recv(1):
                raise EOFError("the worker is gone")
            return None
        tensor = arguments.pop("tensor", None)
        send(sock, [function, arguments], b"" if tensor is None else bytes_of(tensor))
        value, raw = receive(sock)
        return tensor_of(raw) if len(raw) else value

    def stop(self):
        for sock in self.socks.values():
            sock.close()
        for process in self.processes.values():
            process.wait(10)
