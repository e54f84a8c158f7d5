"""The frames between the service and its clients: JSON objects with a version, checked before anything is done with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from comfy_env.orchestrator.problems import Refused
from comfy_env.orchestrator.store import Row

VERSION = 1
LONGEST = 1 << 20
LONGEST_NAME = 200
MOST = 1 << 63


@dataclass(frozen=True)
class Hello:
    """The first frame. ``after``: the last event the client has seen; ``session``: the only one it wants, '' for all."""

    v: int
    session: str = ""
    after: int = 0


@dataclass(frozen=True)
class Open:
    """Make a session with an agent under the client's own id, or find it again."""

    session: str
    agent: str
    title: str = ""


@dataclass(frozen=True)
class Msg:
    """A message under the client's own id: after `retry` or a lost connection the same id is sent again."""

    session: str
    id: str
    text: str


@dataclass(frozen=True)
class SendNow:
    """Do not wait for the render."""

    session: str


@dataclass(frozen=True)
class Stop:
    """Ask the turn that runs to end."""

    session: str


@dataclass(frozen=True)
class Ping:
    """Is anybody there?"""


Frame = Hello | Open | Msg | SendNow | Stop | Ping

KINDS: Mapping[str, type] = {"hello": Hello, "open": Open, "msg": Msg, "send_now": SendNow, "stop": Stop, "ping": Ping}


def parse(text: str) -> Frame:
    """Return a client's frame; raises Refused saying what is wrong with it."""
    if len(text) > LONGEST:
        raise Refused(f"a frame of {len(text)} characters is longer than {LONGEST}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"a frame must be JSON: {error}") from error
    if not isinstance(document, dict):
        raise Refused("a frame must be a JSON object")
    kind = document.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refused(f"{kind!r} is no kind of frame; there are {', '.join(KINDS)}")
    return read(KINDS[kind], document)


def read(shape: type, document: Mapping[str, Any]) -> Any:
    """Return a document as a frame; raises Refused naming the field that is wrong."""
    hints = get_type_hints(shape)
    known = {field.name: field for field in fields(shape)}
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise Refused(f"{shape.__name__.lower()} has no field {unknown[0]!r}")
    for name, value in document.items():
        _check(name, value, hints[name])
    try:
        frame = shape(**document)
    except TypeError as error:
        raise Refused(f"{shape.__name__.lower()}: {str(error).partition(') ')[2] or error}") from error
    if isinstance(frame, Hello) and frame.v != VERSION:
        raise Refused(f"this service speaks version {VERSION} of the protocol, not {frame.v}")
    return frame


def _check(name: str, value: Any, wanted: type) -> None:
    if type(value) is not wanted:
        raise Refused(f"{name!r} must be {wanted.__name__}, not {type(value).__name__}")
    if isinstance(value, str) and name != "text" and not (name == "title" or 0 < len(value) <= LONGEST_NAME or not value):
        raise Refused(f"{name!r} is longer than {LONGEST_NAME} characters")
    if isinstance(value, int) and not 0 <= value < MOST:
        raise Refused(f"{name!r} must be between 0 and {MOST}")
    if isinstance(value, str) and not is_text(value):
        raise Refused(f"{name!r} holds half a character, which cannot be kept")
    if name in ("id", "session", "agent") and isinstance(value, str) and "\0" in value:
        raise Refused(f"{name!r} holds a zero character")


def is_text(value: str) -> bool:
    """Tell whether a string can be written anywhere: JSON may name halves of a character."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def number(text: str, name: str) -> int:
    """Return a number that came as text; raises Refused."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Refused(f"{name}={text[:40]!r} is no number of an event")
    return int(text)


# ---------------------------------------------------------------- what the service says


def frame(kind: str, **facts: Any) -> str:
    return json.dumps({"kind": kind, **facts})


def event(row: Row) -> str:
    """Return the frame of a committed event."""
    return frame("event", seq=row.seq, session=row.session, message=row.message, what=row.kind, body=json.loads(row.body), at=row.at)


def accepted(id: str, seq: int, state: str) -> str:
    return frame("accepted", id=id, seq=seq, state=state)


def retry(id: str, why: str = "") -> str:
    """Not kept, for a reason that passes: send it again in a moment, under the same id."""
    return frame("retry", id=id, why=why)


def refused(id: str, why: str) -> str:
    return frame("refused", id=id, why=why)
