"""Faults planted into a copy of the lifecycle's table, each of which exploration must find.

They check the checks: a rule that no fault can break says nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from comfy_env.lifecycle import births, calls, endings, host, idle, lane, limits, news
from comfy_env.lifecycle import effects as f
from comfy_env.lifecycle import events as e
from comfy_env.lifecycle.deaths import Kind, Outcome, Reason
from comfy_env.lifecycle.machine import TABLE, Handler, decide
from comfy_env.lifecycle.record import SERVING, Activity, Closing, Env, State, Step, with_ledger, with_row
from comfy_env.testing.explore import Decide, Violation, explore
from comfy_env.testing.lifecycle_scenarios import SCENARIOS


@dataclass(frozen=True)
class Fault:
    """``rule`` must find it in the named scenario; ``decide`` is the machine with the fault in it."""

    name: str
    rule: str
    scenario: str
    decide: Decide


def hunt(fault: Fault) -> Violation | None:
    """Return the shortest violation in the fault's scenario, None if it is not found there."""
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == fault.scenario)
    return explore(scenario, fault.decide).violation


def _cells(event: type[e.Event], states: Iterable[State], handler: Handler) -> Decide:
    """Plant a handler into some cells of a copy of the table."""
    return partial(decide, table={**TABLE, event: {**TABLE[event], **dict.fromkeys(states, handler)}})


def _everywhere(change: Callable[[Env, e.Event, float, Step], Step]) -> Decide:
    """Plant a fault that touches every cell alike."""
    return lambda env, event, now: change(env, event, now, decide(env, event, now))


# ---------------------------------------------------------------- the faults, each a handler gone wrong

def _reaper_without_lease(env: Env, event: e.Tick, now: float) -> Step:
    after, effects = limits.ready(env, event, now)
    reaped = any(isinstance(effect, f.Kill) and effect.reason is Reason.REAPED for effect in effects)
    return (env, effects) if reaped else (after, effects)


def _dispatch_before_proof(env: Env, event: e.LanesOpen, now: float) -> Step:
    return lane.ready(with_row(env, proved=now), now)


def _offer_stays_with_who_left(env: Env, event: e.CallWithdrawn, now: float) -> Step:
    if env.row.activity.offered == event.ticket:
        return env, (f.Settle(env.row.generation, event.ticket, calls.WITHDRAWN),)
    return calls.withdrawn(env, event, now)


def _offer_is_lost_with_who_left(env: Env, event: e.CallWithdrawn, now: float) -> Step:
    if env.row.activity.offered == event.ticket:
        return with_row(env, activity=Activity()), (f.Settle(env.row.generation, event.ticket, calls.WITHDRAWN),)
    return calls.withdrawn(env, event, now)


def _generation_not_bumped(env: Env, event: e.Event, now: float, step: Step) -> Step:
    after, effects = step
    if not any(isinstance(effect, f.Spawn) for effect in effects) or not env.ledger.generation:
        return step
    same = env.ledger.generation
    after = with_row(with_ledger(after, generation=same), generation=same)
    return after, tuple(f.Spawn(same) if isinstance(effect, f.Spawn) else effect for effect in effects)


def _settled_again_by_the_late_reply(env: Env, event: e.CallEnded, now: float) -> Step:
    return env, (f.Settle(event.generation, event.ticket, event.outcome),)


def _old_news_is_heard(env: Env, event: e.Event, now: float) -> Step:
    if isinstance(event, e.News):
        event = replace(event, generation=env.row.generation)
    return decide(env, event, now)


def _judge_skipped(env: Env, event: e.Proved, now: float) -> Step:
    return births.proved(env, replace(event, expected=event.proof.echo or "", proof=replace(event.proof, cpu=event.proof.echo)), now)


def _twin_before_the_tree_is_gone(env: Env, event: e.ProcessExited, now: float) -> Step:
    env, effects = news.exited_serving(env, event, now)
    env, more = endings.rest(env, now) if env.ledger.waiting else (env, ())
    return env, (*effects, *more)


def _spawn_after_the_shutdown(env: Env, event: e.CallWanted, now: float) -> Step:
    return calls.wanted_cold(env, event, now)


def _belief_shrinks_with_the_call(env: Env, event: e.CallEnded, now: float) -> Step:
    after, effects = calls.ended(env, event, now)
    return with_row(after, held=0), effects


def _crash_without_an_answer(env: Env, event: e.ProcessExited, now: float) -> Step:
    after, effects = news.exited_serving(env, event, now)
    return after, tuple(effect for effect in effects if not isinstance(effect, f.Settle))


def _told_crash_without_an_answer(env: Env, event: e.CrashTold, now: float) -> Step:
    after, effects = news.crash_serving(env, event, now)
    return after, tuple(effect for effect in effects if not isinstance(effect, f.Settle))


def _twin_of_the_crashing(env: Env, event: e.CrashTold, now: float) -> Step:
    env, effects = news.crash_serving(env, event, now)
    env, more = endings.rest(env, now) if env.ledger.waiting else (env, ())
    return env, (*effects, *more)


def _exit_waited_for_without_a_limit(env: Env, event: e.CrashTold, now: float) -> Step:
    after, effects = news.crash_serving(env, event, now)
    return with_row(after, due=None), effects


def _told_crash_leaves_its_tree(env: Env, event: e.ProcessExited, now: float) -> Step:
    return endings.rest(env, now) if env.row.closing is Closing.EXIT else news.exited_closing(env, event, now)


def _stand_ins_dropped(env: Env, event: e.Event, now: float, step: Step) -> Step:
    after, effects = step
    return after, tuple(effect for effect in effects if not isinstance(effect, f.Quarantine))


def _row_inherited(env: Env, event: e.Event, now: float, step: Step) -> Step:
    after, effects = step
    born = any(isinstance(effect, f.Spawn) for effect in effects)
    return (with_row(after, pid=env.row.pid), effects) if born else step


def _twin_of_the_wedged(env: Env, event: e.WontDie, now: float) -> Step:
    return endings.rest(env, now)


def _last_come_first_served(env: Env, event: e.CallEnded, now: float) -> Step:
    return calls.ended(with_ledger(env, waiting=env.ledger.waiting[::-1]), event, now)


def _pause_ignored(env: Env, event: e.CallWanted, now: float) -> Step:
    return calls.wanted_cold(with_ledger(env, parked_until=None), event, now)


def _reaped_with_stand_ins(env: Env, event: e.Tick, now: float) -> Step:
    after, effects = limits.ready(env, event, now)
    blind = with_row(env, stand_ins=0)
    due = idle.reap_due(blind) if lane.is_free(env.row) and not effects else None
    return endings.retire(env, now, Reason.REAPED) if due is not None and now >= due else (after, effects)


def _birth_without_a_limit(env: Env, event: e.Spawned, now: float) -> Step:
    after, effects = births.spawned(env, event, now)
    return with_row(after, due=None), effects


def _offer_lost_with_the_worker(env: Env, event: e.ProcessExited, now: float) -> Step:
    return news.exited_serving(with_row(env, activity=env.row.activity._replace(offered=None)), event, now)


def _ping_blamed_on_the_call(env: Env, event: e.PingFailed, now: float) -> Step:
    ledger, settled = endings.settle_waiting(env.ledger, env.row.generation, Outcome(Kind.CRASHED))
    after, effects = endings.retire(with_ledger(env, waiting=ledger.waiting), now, Reason.PING_FAILED)
    return after, (*settled, *effects)


def _lane_not_given_on(env: Env, event: e.CallEnded, now: float) -> Step:
    if env.row.activity.running != event.ticket:
        return env, ()
    return with_row(env, state=State.READY, activity=Activity(since=now)), (f.Settle(event.generation, event.ticket, event.outcome),)


def _quarantine_dropped_at_the_death(env: Env, event: e.TreeGone, now: float) -> Step:
    after, effects = news.tree_gone(env, event, now)
    dropped = (f.DropQuarantine(event.generation),) if env.ledger.quarantined else ()
    return with_ledger(after, quarantined=False), (*dropped, *effects)


def _offer_to_nobody(env: Env, event: e.CallEnded, now: float) -> Step:
    after, effects = calls.ended(env, event, now)
    return after, tuple(effect for effect in effects if not isinstance(effect, f.Dispatch))


def _second_call_beside_the_first(env: Env, event: e.CallWanted, now: float) -> Step:
    return lane.offer(env, event.ticket, event.silence)


def _taken_unseen(env: Env, event: e.CallWanted, now: float) -> Step:
    free = env.row.activity.offered is None
    return (lane.take(env, event.ticket, 0.0, now), ()) if free else calls.wanted_ready(env, event, now)


def _taken_from_a_release(env: Env, event: e.CallWanted, now: float) -> Step:
    seen = event.seen == env.row.generation
    return (lane.take(env, event.ticket, 0.0, now), ()) if seen else calls.wanted_later(env, event, now)


def _sweep_over_and_over(env: Env, event: e.Tick, now: float) -> Step:
    due = idle.sweep_due(env)
    return (with_row(env, held=env.row.held), ()) if due is not None and now >= due else limits.ready(env, event, now)


def _killed_without_an_answer(env: Env, event: e.KillWanted, now: float) -> Step:
    after, _ = news.kill_busy(env, event, now)
    return after, (f.Kill(env.row.generation, event.reason, False),)


def _dispatched_to_the_next(env: Env, event: e.Proved, now: float) -> Step:
    after, effects = births.proved(env, event, now)
    return after, tuple(replace(effect, generation=99) if isinstance(effect, f.Note | f.Kill) else effect for effect in effects)


def _stale_replaced_under_a_call(env: Env, event: e.SourceChanged, now: float) -> Step:
    after, _ = host.source_changed(env, event, now)
    return with_row(after, state=State.CLOSING, due=now), (f.Kill(env.row.generation, Reason.STALE_SOURCE, True),)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "the reaper holds no lease", "the_lane_is_leased_to_its_judge", "the sweep and the reaper",
        _cells(e.Tick, [State.READY], _reaper_without_lease),
    ),
    Fault(
        "a call is dispatched before the proof", "nothing_on_an_unproved_lane", "births fail and workers die",
        _cells(e.LanesOpen, [State.JOINING], _dispatch_before_proof),
    ),
    Fault(
        "the asker leaves between offer and acceptance and keeps the offer", "a_ticket_is_in_one_place", "askers leave",
        _cells(e.CallWithdrawn, [State.READY], _offer_stays_with_who_left),
    ),
    Fault(
        "the asker leaves between offer and acceptance and nobody gets the lane", "nobody_waits_for_nothing", "askers leave",
        _cells(e.CallWithdrawn, [State.READY], _offer_is_lost_with_who_left),
    ),
    Fault(
        "the generation is not bumped", "generations_rise_by_one", "births fail and workers die",
        _everywhere(_generation_not_bumped),
    ),
    Fault(
        "a call is settled twice", "a_call_is_settled_once", "births fail and workers die",
        _cells(e.CallEnded, [State.CLOSING], _settled_again_by_the_late_reply),
    ),
    Fault("old news is heard", "old_news_changes_nothing", "old news comes late", _old_news_is_heard),
    Fault(
        "the judge is skipped", "nothing_on_an_unproved_lane", "births fail and workers die",
        _cells(e.Proved, [State.PROVING], _judge_skipped),
    ),
    Fault(
        "the next worker does not wait for the tree", "one_worker_at_a_time", "births fail and workers die",
        _cells(e.ProcessExited, SERVING, _twin_before_the_tree_is_gone),
    ),
    Fault("a closed pool spawns", "closed_is_closed", "the pool is closed", _cells(e.CallWanted, [State.GONE], _spawn_after_the_shutdown)),
    Fault(
        "belief shrinks without a receipt", "belief_shrinks_by_receipt_only", "the sweep and the reaper",
        _cells(e.CallEnded, [State.BUSY], _belief_shrinks_with_the_call),
    ),
    Fault(
        "a crash answers nobody", "a_ticket_is_in_one_place", "births fail and workers die",
        _cells(e.ProcessExited, [State.BUSY], _crash_without_an_answer),
    ),
    Fault(
        "a told crash answers nobody", "a_ticket_is_in_one_place", "a crash is told before the exit",
        _cells(e.CrashTold, [State.BUSY], _told_crash_without_an_answer),
    ),
    Fault(
        "the next worker does not wait for the exit of a told crash", "one_worker_at_a_time", "a crash is told before the exit",
        _cells(e.CrashTold, SERVING, _twin_of_the_crashing),
    ),
    Fault(
        "the exit of a told crash is waited for without a limit", "every_wait_has_a_limit", "a crash is told before the exit",
        _cells(e.CrashTold, SERVING, _exit_waited_for_without_a_limit),
    ),
    Fault(
        "a told crash leaves its tree behind", "one_worker_at_a_time", "a crash is told before the exit",
        _cells(e.ProcessExited, [State.CLOSING], _told_crash_leaves_its_tree),
    ),
    Fault("stand-ins are dropped with their worker", "stand_ins_are_kept", "the reaper and stand-ins", _everywhere(_stand_ins_dropped)),
    Fault(
        "the quarantine ends with the death", "stand_ins_are_kept", "the reaper and stand-ins",
        _cells(e.TreeGone, [State.CLOSING], _quarantine_dropped_at_the_death),
    ),
    Fault("a row inherits from the former", "a_row_is_born_empty", "births fail and workers die", _everywhere(_row_inherited)),
    Fault(
        "a wedged worker gets a twin", "one_worker_at_a_time", "others wait for a worker that will not die",
        _cells(e.WontDie, [State.CLOSING], _twin_of_the_wedged),
    ),
    Fault(
        "the last come is served first", "calls_are_served_in_order", "askers leave",
        _cells(e.CallEnded, [State.BUSY], _last_come_first_served),
    ),
    Fault(
        "the pause of a crash loop is ignored", "a_pause_is_kept", "a crash loop parks",
        _cells(e.CallWanted, [State.PARKED], _pause_ignored),
    ),
    Fault(
        "the reaper overlooks stand-ins", "only_the_idle_are_reaped", "the reaper and stand-ins",
        _cells(e.Tick, [State.READY], _reaped_with_stand_ins),
    ),
    Fault("a birth has no limit", "every_wait_has_a_limit", "limits pass", _cells(e.Spawned, [State.SPAWNING], _birth_without_a_limit)),
    Fault(
        "an offer dies with the worker", "a_ticket_is_in_one_place", "births fail and workers die",
        _cells(e.ProcessExited, [State.READY], _offer_lost_with_the_worker),
    ),
    Fault(
        "a failed ping is blamed on the call", "waiting_for_a_proved_worker_is_safe", "a pinged worker is late",
        _cells(e.PingFailed, [State.PINGING], _ping_blamed_on_the_call),
    ),
    Fault("the lane is not given on", "nobody_waits_for_nothing", "limits pass", _cells(e.CallEnded, [State.BUSY], _lane_not_given_on)),
    Fault("the lane is offered to nobody", "somebody_always_answers", "askers leave", _cells(e.CallEnded, [State.BUSY], _offer_to_nobody)),
    Fault(
        "a call takes the lane from a running one", "a_ticket_is_in_one_place", "limits pass",
        _cells(e.CallWanted, [State.BUSY], _second_call_beside_the_first),
    ),
    Fault(
        "a lane is taken by who has not seen its worker", "the_lane_is_given_to_who_is_there", "askers leave",
        _cells(e.CallWanted, [State.READY], _taken_unseen),
    ),
    Fault(
        "a lane is taken from a release", "the_lane_is_given_to_who_is_there", "the sweep and the reaper",
        _cells(e.CallWanted, [State.RELEASING], _taken_from_a_release),
    ),
    Fault(
        "a sweep that is due does nothing", "a_due_tick_does_something", "the sweep and the reaper",
        _cells(e.Tick, [State.READY], _sweep_over_and_over),
    ),
    Fault(
        "a stale worker is ended under its call", "one_thing_on_the_lane", "the sources change",
        _cells(e.SourceChanged, [State.BUSY], _stale_replaced_under_a_call),
    ),
    Fault(
        "an ended worker leaves its call open", "a_death_answers_its_call", "a busy worker is killed",
        _cells(e.KillWanted, [State.BUSY], _killed_without_an_answer),
    ),
    Fault(
        "an effect is meant for another worker", "effects_speak_of_the_row", "births fail and workers die",
        _cells(e.Proved, [State.PROVING], _dispatched_to_the_next),
    ),
)


def main() -> int:
    """Hunt every fault and print the shortest trace that shows it."""
    missed = 0
    for fault in FAULTS:
        violation = hunt(fault)
        missed += violation is None
        sys.stdout.write(f"{fault.name}\n  {violation or 'NOT FOUND'}\n\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
