"""What can be said of a SIGKILL that this host did not send: mostly the system had no memory left."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from comfy_env.values import ExitStatus

COUNTERS = Path("/proc/vmstat")
NEXT = "use smaller inputs or fewer environments at once, or give the machine more memory"


def kills() -> int:
    """Return how many processes this kernel has ended for lack of memory; 0 where that is not told."""
    with contextlib.suppress(OSError, ValueError):  # another system, or a kernel that does not count
        words = COUNTERS.read_text().split()
        return int(words[words.index("oom_kill") + 1])
    return 0


def hint(status: ExitStatus | None, kills_before: int) -> str:
    """Return what to do about a process that SIGKILL ended, '' if another thing did."""
    if status is None or status.signal != signal.SIGKILL:
        return ""
    if kills() > kills_before:
        return f"the system ran out of memory and the kernel ended the worker: {NEXT}"
    return f"SIGKILL came from outside; mostly that means the system ran out of memory (the kernel's log tells): {NEXT}"
