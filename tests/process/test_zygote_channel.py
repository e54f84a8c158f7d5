"""The channel to a zygote: messages come whole, with their descriptors, or fail by what happened."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from comfy_env.process.zygote_channel import Channel


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel()
    yield made
    made.close()


@pytest.fixture
def zygote(channel) -> Iterator[socket.socket]:
    """What the zygote has of it."""
    with socket.socket(fileno=os.dup(channel.boot_fd)) as end:
        yield end


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def test_a_message_arrives_with_its_descriptors(channel, zygote, tmp_path):
    (tmp_path / "file").write_text("inside")
    with open(tmp_path / "file", "rb") as file:
        channel.tell({"do": "fork"}, [file.fileno()])
    data, descriptors, *_ = socket.recv_fds(zygote, 100, 4)
    with os.fdopen(descriptors[0], "rb") as got:
        assert got.read() == b"inside"
    assert data + zygote.recv(100) == sized(b'{"do": "fork"}')


def test_an_answer_in_pieces_is_heard_whole(channel, zygote):
    text = json.dumps({"pid": 7, "more": "x" * 5000}).encode()
    for piece in (sized(text)[:2], sized(text)[2:9], sized(text)[9:]):
        zygote.sendall(piece)
    assert channel.heard() == json.loads(text)


@pytest.mark.parametrize("said", [b"[1]", b"no json"])
def test_what_is_no_object_is_refused(channel, zygote, said):
    zygote.sendall(sized(said))
    with pytest.raises(ValueError):
        channel.heard()


def test_an_end_in_the_middle_of_an_answer_is_told(channel, zygote):
    zygote.sendall(sized(b"{}")[:5])
    zygote.close()
    channel.child_started()
    with pytest.raises(ConnectionResetError, match="its channel ended"):
        channel.heard()


def test_silence_is_told_after_the_limit(channel):
    channel.limit(0.05)
    with pytest.raises(TimeoutError):
        channel.heard()


def test_an_answer_that_a_night_kept_is_heard_all_the_same(channel, zygote, monkeypatch):
    """Nothing is lived while it waits; by the clock its time is over."""
    monkeypatch.setattr("comfy_env.process.patience.time", SimpleNamespace(monotonic=lambda: 0.0))
    channel.limit(0.2)
    with ThreadPoolExecutor(1) as threads:
        heard = threads.submit(channel.heard)
        with pytest.raises(TimeoutError):
            heard.result(0.6)
        assert not heard.done()
        zygote.sendall(sized(b'{"pid": 7}'))
        assert heard.result(20) == {"pid": 7}


def test_closing_twice_closes_nothing_of_others(channel):
    before = set(os.listdir("/proc/self/fd"))
    channel.close()
    channel.close()
    assert len(before - set(os.listdir("/proc/self/fd"))) == 4   # both ends, and the lifeline's
