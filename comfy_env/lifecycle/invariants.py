"""What must hold at every step, as named predicates; each returns what is wrong, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Kind, Reason
from comfy_env.lifecycle.machine import next_due
from comfy_env.lifecycle.memory import Moment
from comfy_env.lifecycle.record import ALIVE, Closing, State, WorkerRecord

RESTING = frozenset({State.COLD, State.PARKED, State.GONE})
LIMITED = frozenset({State.SPAWNING, State.JOINING, State.PROVING, State.PINGING, State.RELEASING, State.CLOSING})
ON_THE_LANE = (f.Dispatch, f.Ping, f.Release, f.Goodbye)
NOT_ITS_FAULT = frozenset({Kind.PARKED, Kind.CLOSED, Kind.WEDGED, Kind.WITHDRAWN, Kind.INTERRUPTED})


Predicate = Callable[[Moment], str]


def one_worker_at_a_time(m: Moment) -> str:
    """The next worker is started only when the former one's process is gone."""
    if not m.has(f.Spawn):
        return ""
    left = m.memory.started - m.ended()
    return f"a worker is started while generation {min(left)} is not gone" if left else ""


def generations_rise_by_one(m: Moment) -> str:
    """A generation never falls, and each worker gets the next one."""
    was, now_is = m.before.ledger.generation, m.after.ledger.generation
    for effect in m.each(f.Spawn):
        if effect.generation != was + 1 or effect.generation in m.memory.started:
            return f"generation {effect.generation} is started after {was}"
    if now_is < was or m.after.row.generation < m.before.row.generation:
        return f"the generation fell from {was} to {now_is}"
    return "" if m.after.row.generation == now_is else f"the row is of generation {m.after.row.generation}, the ledger of {now_is}"


def a_row_is_born_empty(m: Moment) -> str:
    """Nothing of a former worker is found in the row of the next."""
    if not m.has(f.Spawn):
        return ""
    row = m.after.row
    empty = WorkerRecord.born_as(row.generation, m.now, row.due or 0.0)
    return "" if row == empty else "a new row is not empty"


def a_ticket_is_in_one_place(m: Moment) -> str:
    """Every call that was not answered waits, is offered the lane, or runs: exactly one of them."""
    activity = m.after.row.activity
    places = [ticket for ticket, _ in m.after.ledger.waiting]
    places += [ticket for ticket in (activity.offered, activity.running) if ticket is not None]
    open_ones = set(m.memory.asked)
    if type(m.event) is e.CallWanted:
        open_ones.add(m.event.ticket)
    open_ones -= m.memory.settled
    open_ones -= {effect.ticket for effect in m.effects if type(effect) is f.Settle}
    if len(set(places)) != len(places):
        return f"a call is in two places: {places}"
    lost, extra = open_ones - set(places), set(places) - open_ones
    return (f"call {min(lost)} is lost" if lost else "") or (f"call {min(extra)} was answered and is still kept" if extra else "")


def a_call_is_settled_once(m: Moment) -> str:
    """No ticket is answered twice."""
    seen = set(m.memory.settled)
    for effect in m.effects:
        if type(effect) is f.Settle:
            if effect.ticket in seen:
                return f"call {effect.ticket} is settled twice"
            seen.add(effect.ticket)
    return ""


def nothing_on_an_unproved_lane(m: Moment) -> str:
    """No call, ping, release or goodbye goes to a worker that did not prove itself."""
    bad = [effect for effect in m.effects if type(effect) in ON_THE_LANE and effect.generation not in m.trusted()]
    return f"{type(bad[0]).__name__} before the proof" if bad else ""


def the_lane_is_leased_to_its_judge(m: Moment) -> str:
    """From the moment a worker's end is decided nothing is put on its lane."""
    bad = [x for x in m.effects if type(x) in (f.Dispatch, f.Ping, f.Release) and x.generation in m.memory.judged]
    if bad:
        return f"{type(bad[0]).__name__} on the lane of a worker whose end was decided"
    decided = any(type(effect) in (f.Kill, f.AskStack) for effect in m.effects)
    if decided and m.after.row.state is not State.CLOSING:
        return f"its end is decided and its row stays {m.after.row.state.value}"
    return ""


def one_thing_on_the_lane(m: Moment) -> str:
    """One holder at a time: offered in READY, running in BUSY or while its stack is read, and never both."""
    row = m.after.row
    activity = row.activity
    if sum(type(effect) in ON_THE_LANE for effect in m.effects) > 1:
        return "two things are put on the lane at once"
    if activity.offered is not None and (row.state is not State.READY or activity.running is not None):
        return f"the lane is offered in {row.state.value}"
    holding = row.state is State.BUSY or row.closing is Closing.STACK
    if activity.running is not None and not holding:
        return f"a call runs in {row.state.value}"
    return "nobody runs in busy" if row.state is State.BUSY and activity.running is None else ""


def the_lane_is_given_to_who_is_there(m: Moment) -> str:
    """A call begins by taking up an offer, or at once where its asker has seen the worker of a free lane that nobody waits for."""
    row, was, event = m.after.row, m.before, m.event
    running = row.activity.running
    if running is None or running == was.row.activity.running:
        return ""
    if row.generation not in m.trusted() or row.generation in m.memory.judged or was.row.state is not State.READY:
        return f"call {running} begins on a lane that is not free"
    offered = type(event) is e.Accepted and event.ticket == running == was.row.activity.offered
    seen = type(event) is e.CallWanted and event.ticket == running and event.seen == row.generation
    first = was.row.activity.offered is None and not was.ledger.waiting
    return "" if offered or (seen and first) else f"call {running} begins on a lane that it was not given"


def nobody_waits_for_nothing(m: Moment) -> str:
    """Where nothing is under way nobody waits."""
    row = m.after.row
    idle = row.state is State.READY and row.activity.offered is None
    if m.after.ledger.waiting and (idle or row.state in RESTING or row.state is State.WEDGED):
        return f"somebody waits while the row is {row.state.value}"
    return ""


def every_wait_has_a_limit(m: Moment) -> str:
    """Whatever the driver was asked for has a time by which it must have answered."""
    row = m.after.row
    return f"{row.state.value} without a limit" if row.state in LIMITED and row.due is None else ""


def a_due_tick_does_something(m: Moment) -> str:
    """A tick that is due is not due again at once, and one that is not due changes nothing."""
    if type(m.event) is not e.Tick:
        return ""
    due = next_due(m.before)
    if due is None or due > m.now:
        return "" if m.after is m.before and not m.effects else "a tick that was not due did something"
    again = next_due(m.after)
    return f"a tick was due at {due} and is due again at {again}" if again is not None and again <= m.now else ""


def old_news_changes_nothing(m: Moment) -> str:
    """News of another generation changes nothing and asks for nothing."""
    if not isinstance(m.event, e.News) or m.event.generation == m.before.row.generation:
        return ""
    return "" if m.after is m.before and not m.effects else f"old news was heard: {type(m.event).__name__}"


def closed_is_closed(m: Moment) -> str:
    """After the shutdown nothing is started and nothing opens it again."""
    closed = m.before.ledger.closed or m.after.ledger.closed
    if closed and m.has(f.Spawn):
        return "a worker is started after the shutdown"
    if m.before.ledger.closed and not m.after.ledger.closed:
        return "the shutdown was undone"
    return "" if m.after.row.state is not State.GONE or closed else "gone without a shutdown"


def belief_shrinks_by_receipt_only(m: Moment) -> str:
    """While a worker lives only a receipt makes what it is believed to hold less."""
    before, after = m.before.row, m.after.row
    same = before.generation == after.generation and after.state in ALIVE
    if same and after.held < before.held and type(m.event) is not e.Receipt:
        return f"held shrank from {before.held} to {after.held} by {type(m.event).__name__}"
    return ""


def stand_ins_are_kept(m: Moment) -> str:
    """The stand-ins of a worker that is killed go to quarantine, and leave it only when others were registered."""
    kept = m.event.count if isinstance(m.event, e.StandInsChanged) else m.before.row.stand_ins
    if m.has(f.Kill) and kept and not m.has(f.Quarantine):
        return "stand-ins are dropped with their worker"
    return "the quarantine was dropped too early" if m.has(f.DropQuarantine) and type(m.event) is not e.StandInsRegistered else ""


def only_the_idle_are_reaped(m: Moment) -> str:
    """The reaper takes only a worker that nobody uses, that holds nothing and that nothing in the host needs."""
    reaped = any(isinstance(x, f.Kill) and x.reason is Reason.REAPED for x in m.effects)
    if not reaped or m.before.row.generation in m.memory.judged:
        return ""
    row, env = m.before.row, m.before
    used = row.state is not State.READY or row.activity.offered is not None or env.ledger.waiting
    needed = row.held or row.stand_ins or row.host_tensors or row.host_references
    prompt = env.ledger.prompt and env.ledger.prompt == row.prompt
    early = not env.limits.idle_reap or m.now < row.activity.since + env.limits.idle_reap
    return "a worker that is in use or needed was reaped" if used or needed or prompt or early else ""


def a_death_answers_its_call(m: Moment) -> str:
    """When a kill is asked for, the call that ran is answered in that very step."""
    return "killed with a call that was not answered" if m.has(f.Kill) and m.after.row.activity.running is not None else ""


def waiting_for_a_proved_worker_is_safe(m: Moment) -> str:
    """A call that has not begun never fails because a worker that had proved itself died."""
    if m.before.row.proved is None:
        return ""
    running = m.before.row.activity.running
    for effect in m.effects:
        if isinstance(effect, f.Settle) and effect.ticket != running and effect.outcome.kind not in NOT_ITS_FAULT:
            return f"call {effect.ticket} had not begun and is answered {effect.outcome.kind.name}"
    return ""


def a_pause_is_kept(m: Moment) -> str:
    """A parked environment starts nothing before its time, unless somebody says it is mended."""
    until = m.before.ledger.parked_until
    early = m.has(f.Spawn) and until is not None and m.now < until and type(m.event) is not e.Unpark
    return "a parked environment starts a worker" if early else ""


def calls_are_served_in_order(m: Moment) -> str:
    """The lane is offered to whoever waited longest."""
    for effect in m.effects:
        if not isinstance(effect, f.Dispatch):
            continue
        queue = [ticket for ticket, _ in m.before.ledger.waiting]
        if m.before.row.activity.offered is not None:
            queue.insert(0, m.before.row.activity.offered)
        answered = {other.ticket for other in m.effects if type(other) is f.Settle}
        left = [ticket for ticket in queue if ticket not in answered]
        if left and effect.ticket != left[0]:
            return f"call {effect.ticket} overtook call {left[0]}"
    return ""


def effects_speak_of_the_row(m: Moment) -> str:
    """An effect is for the worker that is there before or after the step."""
    known = (m.before.row.generation, m.after.row.generation)
    bad = [effect for effect in m.effects if effect.generation not in known]
    return f"{type(bad[0]).__name__} for generation {bad[0].generation}" if bad else ""


INVARIANTS: tuple[Predicate, ...] = (
    one_worker_at_a_time,
    generations_rise_by_one,
    a_row_is_born_empty,
    a_ticket_is_in_one_place,
    a_call_is_settled_once,
    nothing_on_an_unproved_lane,
    the_lane_is_leased_to_its_judge,
    one_thing_on_the_lane,
    the_lane_is_given_to_who_is_there,
    nobody_waits_for_nothing,
    every_wait_has_a_limit,
    old_news_changes_nothing,
    closed_is_closed,
    belief_shrinks_by_receipt_only,
    stand_ins_are_kept,
    only_the_idle_are_reaped,
    a_death_answers_its_call,
    waiting_for_a_proved_worker_is_safe,
    a_pause_is_kept,
    calls_are_served_in_order,
    effects_speak_of_the_row,
    a_due_tick_does_something,
)


def violations(moment: Moment) -> Iterator[tuple[str, str]]:
    """Yield the name of each predicate that does not hold, and what is wrong."""
    for predicate in INVARIANTS:
        wrong = predicate(moment)
        if wrong:
            yield predicate.__name__, wrong
