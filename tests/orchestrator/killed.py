"""The service as a program that kills itself, once, with SIGKILL at one boundary; which one is said in its environment.

KILL_AT is "accept", "begin", "said" or "end" with ":before" or ":after" (the commit of that step), or a step of a handover; at
"store changed" it commits an event with the transaction that takes the store.
KILL_GENERATION is the generation that dies; KILL_FLAG is a file that says that it has happened.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from comfy_env.orchestrator import messages, pipe
from comfy_env.orchestrator.__main__ import main

AT = os.environ.get("KILL_AT", "")
MINE = os.environ.get(pipe.GENERATION, "1") == os.environ.get("KILL_GENERATION", "1")
FLAG = Path(os.environ.get("KILL_FLAG", os.devnull))


def die() -> None:
    if MINE and not FLAG.exists():
        FLAG.write_text(AT)
        os.kill(os.getpid(), signal.SIGKILL)


def die_after(owner: object, name: str, when=lambda *args, **kwargs: True) -> None:
    """Die when a function has returned."""
    function = getattr(owner, name)

    def wrapped(*args, **kwargs):
        value = function(*args, **kwargs)
        if when(*args, **kwargs):
            die()
        return value

    setattr(owner, name, wrapped)


def die_after_awaiting(owner: object, name: str) -> None:
    function = getattr(owner, name)

    async def wrapped(*args, **kwargs):
        value = await function(*args, **kwargs)
        die()
        return value

    setattr(owner, name, wrapped)


STEP, _, SIDE = AT.partition(":")


def plant_in_the_store() -> None:
    """Before: in the open transaction. After: committed, and nobody was told yet."""
    from comfy_env.orchestrator.store import Store

    reached: list[str] = []
    function = getattr(messages, STEP)

    def wrapped(*args, **kwargs):
        value = function(*args, **kwargs)
        reached.append(STEP)
        if SIDE == "before":
            die()
        return value

    setattr(messages, STEP, wrapped)
    made = Store.__init__

    def init(self, db, epoch, committed, clock):
        def heard(rows):
            if SIDE == "after" and reached:
                die()
            committed(rows)

        made(self, db, epoch, heard, clock)

    Store.__init__ = init


def plant_in_the_handover() -> None:
    from comfy_env.orchestrator.handover import Replacement
    from comfy_env.orchestrator.holding import Holding
    from comfy_env.orchestrator.service import Service
    from comfy_env.orchestrator.store import Store

    if STEP == "spawned":
        die_after_awaiting(Replacement, "start")
    elif STEP == "pool closed":
        die_after_awaiting(Service, "close_pool")
    elif STEP == "given up":
        die_after_awaiting(Holding, "give_up")
    elif STEP == "word given":
        die_after(Replacement, "say", lambda self, kind, **facts: kind == pipe.COMMIT)
    elif STEP == "said hello":
        die_after(pipe.Heir, "say", lambda self, kind, **facts: kind == pipe.HELLO)
    elif STEP == "said listening":
        die_after(pipe.Heir, "say", lambda self, kind, **facts: kind == pipe.LISTENING)
    elif STEP == "word heard":
        die_after(pipe.Heir, "hear", lambda self, kind, seconds: kind == pipe.COMMIT)
    elif STEP in ("store taken", "store changed"):
        if STEP == "store changed" and MINE:
            recover = messages.recover
            messages.recover = lambda t, safe: (recover(t, safe), t.event("s", "said", '{"text": "my last word"}'))
        taken = Store.open.__func__
        Store.open = classmethod(lambda cls, *args, **kwargs: (taken(cls, *args, **kwargs), die())[0])
    elif STEP == "said serving":
        die_after(pipe.Heir, "say", lambda self, kind, **facts: kind == pipe.SERVING)


if AT:
    plant_in_the_store() if SIDE else plant_in_the_handover()

if __name__ == "__main__":
    sys.exit(main())
