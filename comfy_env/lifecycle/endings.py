"""The one exit of every worker, and what takes its place.

`retire` is the only way a row ends: its call is answered, everything per-process is forgotten, stand-ins go to
quarantine, the kill is asked for. `condemn` comes before it where a living worker can still show its stack.
"""

from __future__ import annotations

from dataclasses import replace

from comfy_env.lifecycle import crashes
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.effects import AskStack, DropZygote, Effect, Goodbye, Kill, Note, Quarantine, Settle, Spawn
from comfy_env.lifecycle.record import (
    Activity,
    Closing,
    Env,
    Ledger,
    State,
    Step,
    WorkerRecord,
    changed,
    with_parts,
    with_row,
)
from comfy_env.values import ExitStatus

BACK_STOP = 3.0
"""Kill limits after which a kill nobody answered for counts as failed: the backend's, the core's, and one to spare."""

CLOSED = Outcome(Kind.CLOSED, "the pool is closed", hint="make a new WorkerPool")


def begin(env: Env, now: float) -> Step:
    """Start the next generation."""
    generation = env.ledger.generation + 1
    row = WorkerRecord.born_as(generation, now, now + env.limits.spawn)
    return with_parts(env, changed(env.ledger, generation=generation), row), (Spawn(generation),)


def rest(env: Env, now: float) -> Step:
    """Put what follows a worker that is gone in its place: the next generation if somebody waits, else an empty row."""
    ledger = env.ledger
    if ledger.closed:
        return with_parts(env, ledger, WorkerRecord(ledger.generation, State.GONE)), ()
    if ledger.parked_until is not None:
        return with_parts(env, ledger, WorkerRecord(ledger.generation, State.PARKED)), ()
    if ledger.waiting:
        return begin(env, now)
    return with_parts(env, ledger, WorkerRecord(ledger.generation)), ()


def retire(env: Env, now: float, reason: Reason, verdict: Outcome | None = None, status: ExitStatus | None = None) -> Step:
    """Give a row up: answer whom its death concerns, then ask for the kill.

    `verdict` answers the running call, or everybody waiting if the worker was still being born. Whoever only waits for
    a proved worker keeps waiting and gets the next generation.
    """
    env, effects = _give_up(env, now, reason, verdict)
    env, kill = strike(env, now, status)
    return env, (*effects, *kill)


def await_exit(env: Env, now: float, verdict: Outcome) -> Step:
    """Give up a row whose process is ending by itself: the answers come at once, the kill of what it leaves after its exit.

    It waits for that no longer than a kill may take.
    """
    env, effects = _give_up(env, now, Reason.CRASHED, verdict)
    return with_row(env, closing=Closing.EXIT, due=now + env.limits.kill), effects


def strike(env: Env, now: float, status: ExitStatus | None = None) -> Step:
    """Ask for the kill of a row that was given up."""
    row = env.row
    nxt = with_row(env, closing=Closing.TREE, status=status or row.status, due=now + BACK_STOP * env.limits.kill)
    return nxt, (Kill(row.generation, row.ending or Reason.ASKED, bool(env.ledger.waiting)),)


def _give_up(env: Env, now: float, reason: Reason, verdict: Outcome | None) -> Step:
    """Answer whom an end concerns and keep nothing of the row but what its end is told by."""
    env, effects = account(env, now, reason, verdict)
    row = env.row
    heir = WorkerRecord(
        row.generation, State.CLOSING, row.pid, row.device, row.born,
        activity=Activity(since=now, calls=row.activity.calls), ending=reason, stack=row.stack, status=row.status,
    )
    return with_parts(env, env.ledger, heir), effects


def account(env: Env, now: float, reason: Reason, verdict: Outcome | None) -> Step:
    """Settle everybody whom a worker's end concerns and enter it in the ledger."""
    row, generation = env.row, env.row.generation
    ledger, effects = _answer(env, verdict)
    ledger = crashes.counted(ledger, row, reason, verdict, env.limits, now)
    if row.stand_ins:
        ledger, effects = changed(ledger, quarantined=True), (*effects, Quarantine(generation))
    if ledger.parked_until is not None:
        ledger, more = _park(ledger, generation, now)
        effects = (*effects, *more)
    return with_parts(env, ledger, row), effects


def _answer(env: Env, verdict: Outcome | None) -> tuple[Ledger, tuple[Effect, ...]]:
    row, ledger = env.row, env.ledger
    activity = row.activity
    effects: tuple[Effect, ...] = ()
    if activity.running is not None:
        effects = (Settle(row.generation, activity.running, verdict or _lost(row)),)
    if activity.offered is not None:
        ledger = changed(ledger, waiting=((activity.offered, activity.silence), *ledger.waiting))
    if row.proved is None and verdict is not None:
        return settle_waiting(ledger, row.generation, verdict)
    return ledger, effects


def _lost(row: WorkerRecord) -> Outcome:
    return Outcome(Kind.CRASHED, "the worker was ended", row.status, row.stack)


def _park(ledger: Ledger, generation: int, now: float) -> tuple[Ledger, tuple[Effect, ...]]:
    ledger, effects = settle_waiting(ledger, generation, crashes.parked(ledger, now))
    note = Note(generation, f"parked: {crashes.parked(ledger, now).message}", "error")
    drop = (DropZygote(generation),) if ledger.zygote else ()
    return changed(ledger, zygote=False), (*effects, note, *drop)


def settle_waiting(ledger: Ledger, generation: int, outcome: Outcome) -> tuple[Ledger, tuple[Effect, ...]]:
    """Answer everybody waiting alike."""
    if not ledger.waiting:
        return ledger, ()
    return changed(ledger, waiting=()), tuple(Settle(generation, ticket, outcome) for ticket, _ in ledger.waiting)


def condemn(env: Env, now: float, reason: Reason, verdict: Outcome | None = None) -> Step:
    """Judge a living worker: its lane is closed to calls at once, its stack is asked for, then it is retired."""
    if not env.limits.stack:
        return retire(env, now, reason, verdict)
    nxt = with_row(env, state=State.CLOSING, closing=Closing.STACK, due=now + env.limits.stack, ending=reason, verdict=verdict)
    return nxt, (AskStack(env.row.generation),)


def execute(env: Env, now: float, stack: str = "", status: ExitStatus | None = None) -> Step:
    """Retire a condemned worker with the stack that came, or without."""
    row = env.row
    verdict = row.verdict and replace(row.verdict, stack=stack, status=status or row.verdict.status)
    return retire(with_row(env, stack=stack), now, row.ending or Reason.ASKED, verdict, status)


def say_goodbye(env: Env) -> Step:
    """Let a worker whose lane is free end by itself until the shutdown's deadline."""
    due = env.ledger.shutdown_due or 0.0
    row = changed(env.row, state=State.CLOSING, closing=Closing.GOODBYE, due=due, ending=Reason.SHUTDOWN)
    return with_parts(env, env.ledger, row), (Goodbye(row.generation, due),)


def wedge(env: Env, note: str, now: float) -> Step:
    """Keep the row of a worker that will not die: no other one is started beside it.

    One that was seen to exit all the same is tried once more after another kill's time.
    """
    row = changed(env.row, state=State.WEDGED, closing=None, due=None if env.row.status is None else now + env.limits.kill)
    ledger, effects = settle_waiting(env.ledger, row.generation, wedged(row, env.killable))
    said = Note(row.generation, wedged(row, env.killable).message + (f": {note}" if note else ""), "error")
    return with_parts(env, ledger, row), (*effects, said)


def kill_again(env: Env, now: float, reason: Reason) -> Step:
    """Try once more to end a wedged worker; what was known of its exit is asked for anew."""
    nxt = with_row(env, state=State.CLOSING, closing=Closing.TREE, status=None, due=now + BACK_STOP * env.limits.kill)
    return nxt, (Kill(env.row.generation, reason, False),)


def wedged(row: WorkerRecord, killable: bool) -> Outcome:
    """Return what a call to a wedged environment is told."""
    where = " ".join(part for part in (f"pid {row.pid}" if row.pid else "", f"on device {row.device}" if row.device else "") if part)
    if killable:
        message = f"generation {row.generation} was killed but will not die{f' ({where})' if where else ''}"
    else:
        message = f"generation {row.generation} still runs in this process{f' ({where})' if where else ''}"
    return Outcome(Kind.WEDGED, message, hint="restart ComfyUI")
