"""The exit codes of the command and which error gives which."""

from __future__ import annotations

import enum

from comfy_env import errors
from comfy_env.runner.problems import NodeFailed, WorkflowError


class Exit(enum.IntEnum):
    """What a script can rely on; the text is the line of the reference page."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Exit:
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    DONE = 0, "done; everything asked about is in order"
    FAILED = 1, "something failed that has no code of its own"
    USAGE = 2, "the command line is wrong"
    DECLARATION = 3, "a declaration is wrong (PlanError); the message names file and line"
    NOT_READY = 4, "an environment is not ready, or `doctor` found a problem"
    BUILD = 5, "an environment could not be built (BuildFailed); the message names its log"
    CALL = 6, "a node or call failed (CallFailed)"
    WORKER = 7, "no worker could be had (SpawnFailed)"
    NOTHING = 8, "what was named is not there: no such pack, file, environment or story"
    BACKEND = 9, "a backend broke its contract (BackendError)"
    WORKFLOW = 10, "the workflow is wrong (WorkflowError); every problem found is listed"
    INTERRUPTED = 130, "interrupted or cancelled"


CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (errors.BuildCancelled, Exit.INTERRUPTED),
    (errors.Interrupted, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (errors.BuildFailed, Exit.BUILD),
    (errors.CallFailed, Exit.CALL),
    (errors.EncodeRefused, Exit.CALL),
    (errors.SpawnFailed, Exit.WORKER),
    (errors.BackendError, Exit.BACKEND),
    (NodeFailed, Exit.CALL),
    (WorkflowError, Exit.WORKFLOW),
    (errors.PlanError, Exit.DECLARATION),
    (errors.ComfyEnvError, Exit.FAILED),
)
"""The first class an error is an instance of decides."""


class NotThere(errors.ComfyEnvError):
    """What the command line names does not exist."""


def exit_code(error: BaseException) -> Exit:
    """Return the exit code an error ends the command with."""
    if isinstance(error, NotThere):
        return Exit.NOTHING
    return next((code for kind, code in CODES if isinstance(error, kind)), Exit.FAILED)
