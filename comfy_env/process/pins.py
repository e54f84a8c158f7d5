"""A process pinned for a signal: between the look at it and the signal its number cannot pass to another process."""

from __future__ import annotations

import contextlib
import os
import signal
from types import TracebackType

from comfy_env.process.waits import readable


class Pin:
    """A pidfd as a context manager. Where the system has none, or no descriptor is left, the number itself is used.

    The process must be looked at again inside the `with`. `send` returns False where it is gone or refused.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd = -1

    def __enter__(self) -> Pin:
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self.fd = os.pidfd_open(self.pid)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    @property
    def firm(self) -> bool:
        """Whether the process is held by a pidfd."""
        return self.fd >= 0

    def ended(self) -> bool:
        """Return whether the pinned process ended."""
        return self.firm and readable([self.fd], 0)

    def send(self, signum: int) -> bool:
        try:
            if self.firm:
                signal.pidfd_send_signal(self.fd, signum)
            else:
                os.kill(self.pid, signum)
        except OSError:  # it is gone, or it is not ours to signal: the caller's next look tells
            return False
        return True
