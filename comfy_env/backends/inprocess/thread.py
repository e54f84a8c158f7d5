"""A worker that is a thread: the guest loop over its two sockets, seen from outside like a process without a pid."""

from __future__ import annotations

import logging
import os
import socket
import threading
from contextlib import AbstractContextManager
from typing import Any

from comfy_env.process.patience import Patience
from comfy_env.values import ExitStatus
from comfy_env.worker import guest
from comfy_env.worker.interrupts import ThreadInterrupts

log = logging.getLogger(__name__)


class StopInterrupts(ThreadInterrupts):
    """Interrupts that can also be asked for when nobody knows which call runs."""

    def __init__(self) -> None:
        super().__init__()
        self._running = 0

    def begin(self, request: int) -> None:
        super().begin(request)
        self._running = request

    def stop(self) -> bool:
        """Interrupt the call that runs; False if none does."""
        return self.interrupt(self._running)


class GuestThread:
    """Satisfies `values.Process`. It exits when the loop ends: at goodbye, when the lane is gone, by its own error."""

    pid = None
    outputs: tuple[int, ...] = ()
    data: Any = None

    def __init__(
        self, env: str, generation: int, document: dict[str, Any], lanes: tuple[socket.socket, socket.socket], roots: AbstractContextManager
    ) -> None:
        self.env = env
        self.generation = generation
        self._document = document
        self._lanes = lanes
        self._roots = roots
        self._interrupts: StopInterrupts | None = None
        self._status: ExitStatus | None = None
        self._read, self._write = os.pipe()
        self._thread = threading.Thread(target=self._run, name=f"comfy_env {env} #{generation}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<GuestThread of env {self.env}, generation {self.generation}, {self._status or 'running'}>"

    def exit_handle(self) -> int:
        """Return the descriptor that becomes readable when the thread ends; it belongs to this object."""
        return self._read

    def exit_status(self) -> ExitStatus | None:
        return self._status

    def stop(self, seconds: float) -> ExitStatus | None:
        """Take the lanes away, interrupt what runs, wait so long for the end; None if it still runs then."""
        for lane in self._lanes:
            _shut(lane)
        interrupts = self._interrupts
        if interrupts is not None:
            interrupts.stop()
        if threading.current_thread() is not self._thread:
            Patience(seconds).wait(self._ends_within)
        return self._status

    def _ends_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Close the exit handle; idempotent."""
        fd, self._read = self._read, -1
        if fd >= 0:
            os.close(fd)

    # ---- on the thread

    def _run(self) -> None:
        code, note = 1, ""
        try:
            with self._roots:
                code = guest.serve(self._document, *self._lanes, self._make_interrupts)
        except BaseException as error:  # an interrupt or an error outside a call: the loop is over, and its status says why
            note = f"{type(error).__name__}: {error}"
            log.exception("the in-process worker of env %s ended", self.env)
        finally:
            self._status = ExitStatus(code=code, note=note)
            os.close(self._write)

    def _make_interrupts(self) -> StopInterrupts:
        self._interrupts = StopInterrupts()
        return self._interrupts


def _shut(lane: socket.socket) -> None:
    """Make every read and write of a lane end at once, whichever thread is in it."""
    try:
        lane.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        log.debug("the lane was gone already: %s", error)
