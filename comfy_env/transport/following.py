"""One call as its asking thread follows it: progress, callbacks, the end."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from comfy_env.errors import ComfyEnvError, DecodeRefused, EncodeRefused, ReferenceLost
from comfy_env.transport.codec import HostCodec
from comfy_env.values import Progress
from comfy_env.worker.wire.frames import Frame
from comfy_env.worker.wire.kinds import Kind

_log = logging.getLogger("comfy_env")
_ERRORS = EncodeRefused.__module__
_LONGEST = 100_000   # characters of a traceback that are worth sending
ENDS = frozenset({Kind.REPLY, Kind.RAISED, Kind.INTERRUPTED, Kind.REFUSED})


class Talk(Protocol):
    """What following a call needs of its session."""

    codec: HostCodec

    def next_frame(self, request: int, deadline: float | None) -> Frame: ...
    def begin_callback(self) -> None: ...
    def end_callback(self, answer: Frame) -> None: ...
    def interrupt(self, request: int) -> None: ...
    def prove(self, uuid: str) -> None: ...


class Following:
    """Follows one call to its end."""

    def __init__(self, talk: Talk, request: int, alive: Callable[[], None], on_progress: Callable[[Progress], None] | None,
                 callbacks: Mapping[str, Callable[..., Any]]) -> None:
        self._talk = talk
        self._request = request
        self._alive = alive
        self._on_progress = on_progress
        self._callbacks = callbacks
        self._to_raise: BaseException | None = None

    def run(self, frame: Frame, deadline: float | None) -> Frame:
        """Serve this frame and all that follow; return the one that ends the call."""
        while frame.kind not in ENDS:
            self._alive()
            self._serve(frame)
            frame = self._talk.next_frame(self._request, deadline)
        if self._to_raise is not None:
            raise self._to_raise
        return frame

    def _serve(self, frame: Frame) -> None:
        if frame.kind == Kind.CALLBACK:
            self._serve_callback(frame)
        elif frame.kind == Kind.PROGRESS:
            self._report(frame)
        else:
            _log.warning("a worker of env %s sent frame kind %d in a call; it is ignored", self._talk.codec.env, frame.kind)

    # ---- progress

    def _report(self, frame: Frame) -> None:
        if self._on_progress is None or self._to_raise is not None:
            return
        try:
            progress = self._progress(frame)
        except DecodeRefused as refused:
            _log.warning("a progress report of env %s was refused: %s", self._talk.codec.env, refused.message)
            return
        try:
            self._on_progress(progress)
        except BaseException as error:  # a host's progress hook raises to stop the call: it is stopped, then told
            self._to_raise = error
            self._stop()

    def _stop(self) -> None:
        try:
            self._talk.interrupt(self._request)
        except (ComfyEnvError, OSError) as trouble:  # the side lane's own: the call ends by itself, or with the main lane
            _log.warning("the interrupt of a call in env %s could not be sent: %s", self._talk.codec.env, trouble)

    def _progress(self, frame: Frame) -> Progress:
        facts = self._talk.codec.decode(frame.payload, frame.buffers)
        if not isinstance(facts, dict):
            raise DecodeRefused("a progress report is not a dict")
        value, total, node = facts.get("value", 0.0), facts.get("total", 0.0), facts.get("node", "")
        return Progress(value, total, str(node), facts.get("preview"))

    # ---- callbacks

    def _serve_callback(self, frame: Frame) -> None:
        self._talk.begin_callback()
        answer: dict[str, Any] = _failure("Exception", "the callback did not end")
        try:
            answer = self._answer(frame)
        finally:
            self._give(answer)

    def _give(self, answer: dict[str, Any]) -> None:
        """Send an answer; where there is no room for it, say that: the worker waits for one."""
        try:
            self._talk.end_callback(self._frame(answer))
        except EncodeRefused as refused:
            self._talk.end_callback(self._frame(_failure("EncodeRefused", refused.message, _ERRORS)))

    def _answer(self, frame: Frame) -> dict[str, Any]:
        try:
            facts = self._talk.codec.decode(frame.payload, frame.buffers)
            function = self._callbacks.get(facts["name"])
            if function is None:
                return _failure("LookupError", f"the host offers no callback {facts['name']!r} to this call")
            return {"value": function(*facts.get("args", ()), **facts.get("kwargs", {}))}
        except Exception as error:  # what the host's function raises is the worker's to know
            _log.debug("a callback of env %s raised", self._talk.codec.env, exc_info=error)
            return _failure(type(error).__qualname__, _text_of(error), type(error).__module__, _trace_of(error))

    def _frame(self, answer: dict[str, Any]) -> Frame:
        codec = self._talk.codec
        try:
            payload, buffers = codec.encode(answer, message=True, prove=self._talk.prove)
        except (EncodeRefused, ReferenceLost) as refused:
            payload, buffers = codec.encode(_failure("EncodeRefused", str(refused), _ERRORS))
        return Frame(Kind.ANSWER, self._request, codec.generation, payload, buffers)


def _failure(type_name: str, text: str, module: str = "builtins", trace: str = "") -> dict[str, Any]:
    return {"error": {"type": [module, type_name], "text": text, "traceback": trace}}


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception as second:  # a class's own __str__ can raise anything
        return f"<its text cannot be had: {type(second).__name__}>"


def _trace_of(error: Exception) -> str:
    try:
        return "".join(traceback.format_exception(error))[-_LONGEST:]
    except Exception as second:  # as above, for any of its causes
        return "".join(traceback.format_tb(error.__traceback__)) + f"<the rest cannot be had: {type(second).__name__}>\n"
