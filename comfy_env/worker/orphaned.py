"""What a worker does so that it never outlives its host.

The lifeline is a pipe whose only write end is in the host. The host arms its read end so that the kernel kills the
worker's whole group when the host dies, even while native code holds the GIL. The worker looks once more before
anything heavy, arms it itself where the host could not, and watches it from a thread as a second layer.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import sys
import threading

_OWNER = struct.Struct("ii")
_F_SETSIG = 10
_F_GETOWN_EX = 16
_OWNER_IS_GROUP = 2


def host_is_gone(lifeline: int) -> bool:
    """Tell, without waiting, whether the write end of the lifeline is closed."""
    poll = select.poll()
    poll.register(lifeline, 0)
    return bool(poll.poll(0))


def guard(lifeline: int) -> None:
    """Arm the lifeline if nobody did, end at once if the host is gone already, and go on watching."""
    arm(lifeline)
    if host_is_gone(lifeline):
        end_group()
    threading.Thread(target=_watch, args=(lifeline,), name="comfy_env lifeline", daemon=True).start()


def arm(lifeline: int) -> bool:
    """Make the kernel kill this group when the lifeline ends; True if it is armed now.

    Not done where the group is not this session's own (it could be somebody's shell) or has no number in this PID
    namespace (0 would disarm instead).
    """
    group = os.getpgrp()
    if not sys.platform.startswith("linux") or group == 0:
        return False
    if _owner(lifeline) == (_OWNER_IS_GROUP, group):
        return True
    if os.getsid(0) != group:
        return False
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -group)
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    return True


def _owner(lifeline: int) -> tuple[int, int]:
    kind, number = _OWNER.unpack(fcntl.fcntl(lifeline, _F_GETOWN_EX, bytes(_OWNER.size)))
    return kind, number


def _watch(lifeline: int) -> None:
    poll = select.poll()
    poll.register(lifeline, 0)
    poll.poll()
    end_group()


def end_group() -> None:
    """End this process and its group, if the group is this session's own."""
    group = os.getpgrp()
    if group != 0 and group == os.getsid(0):
        os.killpg(group, signal.SIGKILL)
    os._exit(1)
