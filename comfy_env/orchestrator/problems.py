"""The errors of the orchestrator and the exit codes they end it with."""

from __future__ import annotations

from comfy_env.errors import ComfyEnvError

OWNED_BY_ANOTHER = 3
RESTART_ME = 75
STORE_REFUSED = 78


class Owned(ComfyEnvError):
    """Another process serves this state folder."""


class StoreRefused(ComfyEnvError):
    """The store cannot be used: it is unreadable, or a newer version wrote it. Nothing in it was changed."""


class StaleOwner(ComfyEnvError):
    """Another process has taken the store; this one may not write any more."""


class StoreClosed(ComfyEnvError):
    """The store was given up; whoever owns it next takes the message."""


class StoreTrouble(ComfyEnvError):
    """The store could not be written just now: the disk is full, or somebody else holds it. Nothing of the request was kept."""


class Fenced(ComfyEnvError):
    """A restart is under way; nothing new may start in this process."""


class NotOurLife(ComfyEnvError):
    """A client owns this process's input and output, so it must not replace itself."""


class Refused(ComfyEnvError):
    """A request cannot be carried out as it is; asking again does not help."""
