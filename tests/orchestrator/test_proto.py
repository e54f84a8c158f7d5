"""The frames: what is well formed is read, everything else is refused by name."""

from __future__ import annotations

import json

import pytest

from comfy_env.orchestrator import proto
from comfy_env.orchestrator.problems import Refused
from comfy_env.orchestrator.proto import Hello, Msg, Open, Ping, SendNow, Stop, parse
from comfy_env.orchestrator.store import Row


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ('{"kind": "hello", "v": 1}', Hello(1)),
        ('{"kind": "hello", "v": 1, "session": "s", "after": 7}', Hello(1, "s", 7)),
        ('{"kind": "open", "session": "s", "agent": "echo"}', Open("s", "echo")),
        ('{"kind": "msg", "session": "s", "id": "1", "text": ""}', Msg("s", "1", "")),
        ('{"kind": "send_now", "session": "s"}', SendNow("s")),
        ('{"kind": "stop", "session": "s"}', Stop("s")),
        ('{"kind": "ping"}', Ping()),
    ],
)
def test_a_frame_is_read(text: str, frame: object):
    assert parse(text) == frame


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be JSON"),
        ("[]", "JSON object"),
        ("{}", "no kind of frame"),
        ('{"kind": "nothing"}', "'nothing' is no kind of frame; there are hello, open, msg"),
        ('{"kind": ["hello"]}', "no kind of frame"),
        ('{"kind": "hello"}', "missing"),
        ('{"kind": "hello", "v": 2}', "version 1 of the protocol, not 2"),
        ('{"kind": "hello", "v": true}', "'v' must be int, not bool"),
        ('{"kind": "hello", "v": 1, "after": "x"}', "'after' must be int, not str"),
        ('{"kind": "msg", "session": "s", "id": 1, "text": "x"}', "'id' must be str"),
        ('{"kind": "msg", "session": "s", "id": "1"}', "missing"),
        ('{"kind": "msg", "session": "s", "id": "1", "text": "x", "more": 1}', "no field 'more'"),
        (json.dumps({"kind": "stop", "session": "s" * 300}), "longer than 200"),
        (json.dumps({"kind": "stop", "session": "a\0b"}), "zero character"),
        ('{"kind": "msg", "session": "s", "id": "1", "text": "\\ud800"}', "'text' holds half a character"),
        ('{"kind": "hello", "v": 1, "after": -1}', "'after' must be between 0"),
        ('{"kind": "hello", "v": 1, "after": 9223372036854775808}', "'after' must be between 0"),
        ("[" * 100_000, "must be JSON"),
        ("x" * (proto.LONGEST + 1), "longer than"),
    ],
)
def test_what_is_wrong_with_a_frame_is_named(text: str, why: str):
    with pytest.raises(Refused, match=why.replace("(", r"\(")):
        parse(text)


def test_an_event_is_shown_with_its_number_and_body():
    shown = json.loads(proto.event(Row(7, "s", 3, "said", '{"text": "hi"}', 1.5)))
    assert shown == {"kind": "event", "seq": 7, "session": "s", "message": 3, "what": "said", "body": {"text": "hi"}, "at": 1.5}
