"""News of an end, seen or asked for: exits, lost lanes, stacks, trees gone, kills and the shutdown."""

from __future__ import annotations

from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.effects import DropZygote, Effect, Note, SendInterrupt, Settle
from comfy_env.lifecycle.endings import (
    CLOSED,
    await_exit,
    condemn,
    execute,
    kill_again,
    rest,
    retire,
    say_goodbye,
    settle_waiting,
    strike,
    wedge,
)
from comfy_env.lifecycle.events import CrashTold, KillWanted, LaneLost, ProcessExited, ShutdownWanted, StackRead, TreeGone, WontDie
from comfy_env.lifecycle.record import Closing, Env, State, Step, changed, with_activity, with_parts, with_row

Exit = ProcessExited | TreeGone


def exited_joining(env: Env, event: Exit, now: float) -> Step:
    """Answer everybody waiting: the process ended before its lanes were open."""
    why = Outcome(Kind.DIED_BEFORE_JOINING, "the worker ended before its lanes were open", event.status)
    return retire(env, now, Reason.CRASHED, why, event.status)


def exited_proving(env: Env, event: Exit, now: float) -> Step:
    """Answer everybody waiting: the process ended while it proved itself."""
    why = Outcome(Kind.CRASHED, "the worker's process ended while it proved itself", event.status)
    return retire(env, now, Reason.CRASHED, why, event.status)


def exited_serving(env: Env, event: Exit, now: float) -> Step:
    """Answer the running call at once; the kill of what is left goes on behind it."""
    why = Outcome(Kind.CRASHED, "the worker's process ended in the middle of the call", event.status)
    return retire(env, now, Reason.CRASHED, why, event.status)


def crash_joining(env: Env, event: CrashTold, now: float) -> Step:
    """Answer everybody waiting; its exit is waited for behind that."""
    why = Outcome(Kind.DIED_BEFORE_JOINING, "the worker crashed before its lanes were open", event.status, event.stack)
    return await_exit(env, now, why)


def crash_proving(env: Env, event: CrashTold, now: float) -> Step:
    """Answer everybody waiting; its exit is waited for behind that."""
    return await_exit(env, now, Outcome(Kind.CRASHED, "the worker crashed while it proved itself", event.status, event.stack))


def crash_serving(env: Env, event: CrashTold, now: float) -> Step:
    """Answer the running call before the process has given back its memory; its exit is waited for behind that."""
    return await_exit(env, now, Outcome(Kind.CRASHED, "the worker crashed in the middle of the call", event.status, event.stack))


def exited_closing(env: Env, event: Exit, now: float) -> Step:
    """Go on to the kill, which is still needed for whatever the process left behind."""
    row = env.row
    if row.closing is Closing.STACK:
        return execute(env, now, status=event.status)
    if row.closing is Closing.EXIT:
        return strike(env, now, event.status)
    if row.closing is Closing.GOODBYE:
        return retire(env, now, Reason.SHUTDOWN, None, event.status)
    return with_row(env, status=event.status), ()


def exited_wedged(env: Env, event: ProcessExited, now: float) -> Step:
    """Go on with a wedged worker that ended after all: what it left behind is ended and its handles are given back."""
    return kill_again(env, now, env.row.ending or Reason.ASKED)


def lane_lost(env: Env, event: LaneLost, now: float) -> Step:
    """Answer the running call, or everybody waiting in a birth, and end the worker."""
    why = Outcome(Kind.CRASHED, f"the worker's lane was lost{f': {event.why}' if event.why else ''}")
    return retire(env, now, Reason.LANE_LOST, why)


def stack_read(env: Env, event: StackRead, now: float) -> Step:
    """Retire the condemned worker with its stack."""
    return execute(env, now, event.text) if env.row.closing is Closing.STACK else (env, ())


def tree_gone(env: Env, event: TreeGone, now: float) -> Step:
    """Put the next generation or an empty row in place of the worker that is gone."""
    return rest(env, now) if env.row.closing is Closing.TREE else exited_closing(env, event, now)


def tree_gone_wedged(env: Env, event: TreeGone, now: float) -> Step:
    """Go on: the wedged worker is gone after all."""
    return rest(env, now)


def wont_die(env: Env, event: WontDie, now: float) -> Step:
    """Keep the row of a worker that will not die."""
    return wedge(env, event.note, now) if env.row.closing is Closing.TREE else (env, ())


def kill_idle(env: Env, event: KillWanted, now: float) -> Step:
    """End a worker nobody is using; whoever waits for it gets the next one."""
    return retire(env, now, event.reason)


def kill_busy(env: Env, event: KillWanted, now: float) -> Step:
    """End a worker in the middle of a call."""
    return condemn(env, now, event.reason, Outcome(Kind.CRASHED, f"the worker was ended in the middle of the call: {event.reason.value}"))


def kill_closing(env: Env, event: KillWanted, now: float) -> Step:
    """Do not wait for a stack, an exit or a goodbye."""
    if env.row.closing is Closing.STACK:
        return execute(env, now)
    if env.row.closing is Closing.EXIT:
        return strike(env, now)
    return retire(env, now, Reason.SHUTDOWN) if env.row.closing is Closing.GOODBYE else (env, ())


def kill_wedged(env: Env, event: KillWanted, now: float) -> Step:
    """Try once more to end what would not die."""
    return kill_again(env, now, event.reason)


def shutdown_resting(env: Env, event: ShutdownWanted, now: float) -> Step:
    """Close an environment without a worker."""
    env, effects = _closed(env, event, now)
    env, more = rest(env, now)
    return env, (*effects, *more)


def shutdown_birth(env: Env, event: ShutdownWanted, now: float) -> Step:
    """End a worker that is being born."""
    env, effects = _closed(env, event, now)
    env, more = retire(env, now, Reason.SHUTDOWN)
    return env, (*effects, *more)


def shutdown_idle(env: Env, event: ShutdownWanted, now: float) -> Step:
    """Say goodbye; the offer that is out is void."""
    env, effects = _closed(env, event, now)
    was = env.row.activity
    if was.offered is not None:
        effects = (*effects, Settle(env.row.generation, was.offered, CLOSED))
        env = with_activity(env, env.row.state, changed(was, offered=None, silence=0.0))
    env, more = say_goodbye(env)
    return env, (*effects, *more)


def shutdown_busy(env: Env, event: ShutdownWanted, now: float) -> Step:
    """Ask the running call to stop; it has until the deadline."""
    env, effects = _closed(env, event, now)
    ticket = env.row.activity.running
    assert ticket is not None
    return with_row(env, due=env.ledger.shutdown_due), (*effects, SendInterrupt(env.row.generation, ticket))


def shutdown_ending(env: Env, event: ShutdownWanted, now: float) -> Step:
    """Answer everybody waiting; the end that is under way goes on."""
    env, effects = _closed(env, event, now)
    stuck = env.row.state is State.WEDGED
    note = (Note(env.row.generation, "closed with a worker that will not die", "warning"),) if stuck else ()
    return env, (*effects, *note)


def _closed(env: Env, event: ShutdownWanted, now: float) -> Step:
    """Close the ledger for good."""
    due = now + env.limits.shutdown if event.due is None else event.due
    ledger, effects = settle_waiting(env.ledger, env.row.generation, CLOSED)
    drop: tuple[Effect, ...] = (DropZygote(ledger.generation),) if ledger.zygote else ()
    ledger = changed(ledger, closed=True, shutdown_due=due, zygote=False)
    return with_parts(env, ledger, env.row), (*effects, *drop)
