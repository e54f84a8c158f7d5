"""Faults planted into a copy of the restart machine's table; each must be found by the rule it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from comfy_env.orchestrator import back, reasons, way
from comfy_env.orchestrator import effects as f
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.restart import Phase, Restart, Step, Undo, changed
from comfy_env.orchestrator.state import OPEN, TABLE, Handler, step

from .exploring import Decide
from .restart_world import SCENARIOS


@dataclass(frozen=True)
class Fault:
    name: str
    rule: str
    scenario: str
    decide: Decide


def _cells(event: type[e.Event], phases: Iterable[Phase], handler: Handler) -> Decide:
    table = {**TABLE, event: {**TABLE.get(event, {}), **dict.fromkeys(phases, handler)}}
    return partial(step, table=table)


def _after(change: Callable[[Restart, e.Event, float, Step], Step]) -> Decide:
    return lambda restart, event, now: change(restart, event, now, step(restart, event, now))


def _without(*kinds: type[f.Effect]) -> Decide:
    def change(restart: Restart, event: e.Event, now: float, done: Step) -> Step:
        after, effects = done
        return after, tuple(effect for effect in effects if not isinstance(effect, kinds))

    return _after(change)


def _undo_in_wrong_order(restart: Restart, event: Any, now: float) -> Step:
    after, effects = back.failed(restart, event, now)
    if Undo.TAKE_BACK not in after.undo:
        return after, effects
    return changed(after, undo=(Undo.TAKE_BACK, Undo.KILL)), (f.TakeBack(restart.attempt),)


def _word_before_the_store_is_closed(restart: Restart, event: Any, now: float) -> Step:
    return changed(restart, phase=Phase.COMMITTED, due=now + 5, fence_due=None), (f.SendCommit(restart.attempt),)


def _store_before_the_workers(restart: Restart, event: Any, now: float) -> Step:
    after, effects = way.listening(restart, event, now)
    return (changed(after, yielded=True), (*effects, f.Yield(restart.attempt))) if effects else (after, effects)


def _no_kill(restart: Restart, event: Any, now: float) -> Step:
    after, effects = back.failed(restart, event, now)
    return (
        back._next(changed(after, undo=tuple(s for s in after.undo if s is not Undo.KILL)), now)
        if Undo.KILL in after.undo
        else (after, effects)
    )


def _files_stay(restart: Restart, event: Any, now: float) -> Step:
    return back.failed(changed(restart, applied=False), event, now)


def _limit_forgotten(restart: Restart, event: Any, now: float) -> Step:
    after, effects = way.spawned(restart, event, now)
    return changed(after, due=None), effects


def _limit_anew_for_each_step(restart: Restart, event: Any, now: float) -> Step:
    after, effects = way.spawned(restart, event, now)
    return changed(after, fence_due=now + 120), effects


def _limit_beyond_the_fence(restart: Restart, event: Any, now: float) -> Step:
    after, effects = way.listening(restart, event, now)
    return changed(after, due=now + 500), effects


def _tick_again(restart: Restart, event: Any, now: float) -> Step:
    return restart, ()


def _old_news(restart: Restart, event: e.Event, now: float) -> Step:
    return step(restart, replace(event, attempt=restart.attempt) if isinstance(event, e.News) else event, now)


def _no_memory(restart: Restart, event: e.Event, now: float, done: Step) -> Step:
    return (changed(done[0], failures=()), done[1]) if done[0].failures else done


def _no_rest(restart: Restart, event: e.Event, now: float, done: Step) -> Step:
    after, effects = done
    if after.failures == restart.failures:
        return done
    return changed(after, due=now + 30, failures=tuple(replace(failure, until=now + 30) for failure in after.failures)), effects


def _no_count(restart: Restart, event: Any, now: float) -> Step:
    after, effects = way.rechecked(restart, event, now)
    return changed(after, updated=()), effects


def _found_whatever_the_switch(restart: Restart, event: Any, now: float) -> Step:
    return reasons._armed(restart, event.target, by_hand=False)


def _checks_whatever_the_switch(restart: Restart, event: Any, now: float) -> Step:
    return changed(restart, phase=Phase.CHECKING, due=now + 1), (f.Check(),)


def _spawns_anyway(restart: Restart, event: Any, now: float) -> Step:
    after, effects = way.rechecked(restart, event, now)
    return after, tuple(f.Spawn(x.attempt, x.target) if isinstance(x, f.Prove) else x for x in effects)


def _leaves_at_serving(restart: Restart, event: Any, now: float) -> Step:
    return changed(restart, phase=Phase.EXIT, due=None), (f.Leave(0, True),)


def _leaves_with_a_child(restart: Restart, event: Any, now: float) -> Step:
    return changed(restart, phase=Phase.EXIT, due=None, undo=()), (f.Leave(0),)


def _stop_forgotten(restart: Restart, event: Any, now: float) -> Step:
    return restart, (f.PassOn(restart.attempt),)


def _wakes_the_dead(restart: Restart, event: Any, now: float) -> Step:
    return changed(restart, phase=Phase.ARMED), ()


def _repeats_itself(restart: Restart, event: Any, now: float) -> Step:
    return reasons.found(changed(restart, told=frozenset(), target=None), event, now)


def _applies_a_tree(restart: Restart, event: Any, now: float) -> Step:
    after, effects = way.rechecked(restart, event, now)
    if not event.open:
        return after, effects
    return changed(after, phase=Phase.APPLYING, applied=True), (f.TellNow(after.target), f.Apply(after.attempt, after.target))


def _waits_for_nothing(restart: Restart, event: Any, now: float) -> Step:
    return changed(restart, phase=Phase.ROLLBACK, undo=(Undo.PUT_BACK,), due=None), ()


_BUILD, _NEXT, _VERSION = "a build is loaded", "a second build comes meanwhile", "a version is loaded"
_LOST = (Phase.SPAWNED, Phase.PROVEN, Phase.COMMITTED, Phase.CONFIRMING)

FAULTS = (
    Fault("the store is taken back before the replacement ends", "one_writer", _BUILD, _cells(e.Ended, _LOST, _undo_in_wrong_order)),
    Fault(
        "the word is given before the store is closed",
        "one_writer",
        _BUILD,
        _cells(e.PoolClosed, (Phase.PROVEN,), _word_before_the_store_is_closed),
    ),
    Fault("a failed replacement is left alive", "one_replacement", _NEXT, _cells(e.Ended, (Phase.SPAWNED,), _no_kill)),
    Fault(
        "the store is given up before the workers end",
        "workers_end_first",
        _BUILD,
        _cells(e.Listening, (Phase.SPAWNED,), _store_before_the_workers),
    ),
    Fault("the fence stays up", "it_always_serves", _BUILD, _without(f.LiftFence)),
    Fault("the files stay changed", "it_always_serves", _VERSION, _cells(e.Ended, _LOST, _files_stay)),
    Fault("the fence is not raised", "the_fence_is_up", _BUILD, _without(f.RaiseFence)),
    Fault("a limit is forgotten", "every_wait_has_a_limit", _BUILD, _cells(e.Spawned, (Phase.FENCED,), _limit_forgotten)),
    Fault(
        "the fence's limit begins anew", "the_fence_has_one_limit", _BUILD, _cells(e.Spawned, (Phase.FENCED,), _limit_anew_for_each_step)
    ),
    Fault(
        "a step may outlast the fence", "the_fence_has_one_limit", _BUILD, _cells(e.Listening, (Phase.SPAWNED,), _limit_beyond_the_fence)
    ),
    Fault("a tick is not heard", "a_due_tick_does_something", _BUILD, _cells(e.Tick, (Phase.SPAWNED,), _tick_again)),
    Fault("news of a former attempt is heard", "old_news_changes_nothing", "news of a former attempt come late", _old_news),
    Fault("a failed tree is tried again", "a_tree_is_tried_once", _BUILD, _after(_no_memory)),
    Fault("a failed version is tried at once", "a_version_rests", "a version is tried again", _after(_no_rest)),
    Fault("updates are not counted", "updates_are_capped", "updates are capped", _cells(e.Rechecked, (Phase.GATE_OPEN,), _no_count)),
    Fault(
        "it restarts though everything is off",
        "switches_hold",
        "everything automatic is off",
        _cells(e.Found, OPEN, _found_whatever_the_switch),
    ),
    Fault(
        "it checks though everything is off",
        "switches_hold",
        "everything automatic is off",
        _cells(e.CheckDue, (Phase.IDLE,), _checks_whatever_the_switch),
    ),
    Fault("a wish is not heard in the cool-down", "by_hand_works", "restarts by hand", _cells(e.Asked, (Phase.COOLDOWN,), _tick_again)),
    Fault(
        "it spawns under a supervisor", "the_way_is_ours", "a supervisor starts us", _cells(e.Rechecked, (Phase.GATE_OPEN,), _spawns_anyway)
    ),
    Fault("it leaves before the confirmation", "leaving_is_earned", _BUILD, _cells(e.Serving, (Phase.COMMITTED,), _leaves_at_serving)),
    Fault(
        "it ends and leaves its replacement",
        "leaving_is_earned",
        "it is stopped at any moment",
        _cells(e.StopWanted, (Phase.SPAWNED,), _leaves_with_a_child),
    ),
    Fault("nobody is told that it failed", "people_hear_the_end", _BUILD, _without(f.TellFailed)),
    Fault(
        "the wish to end is only passed on",
        "the_stop_is_heard",
        "it is stopped at any moment",
        _cells(e.StopWanted, (Phase.CONFIRMING,), _stop_forgotten),
    ),
    Fault(
        "a finding wakes what has ended", "exit_is_final", "it is stopped at any moment", _cells(e.Found, (Phase.EXIT,), _wakes_the_dead)
    ),
    Fault(
        "people are told again", "people_are_told_once", "restarts are told, not done", _cells(e.Found, (Phase.STAGED,), _repeats_itself)
    ),
    Fault("a tree is installed", "only_versions_change_files", _BUILD, _cells(e.Rechecked, (Phase.GATE_OPEN,), _applies_a_tree)),
    Fault(
        "a step back is awaited that nobody takes",
        "every_wait_has_a_limit",
        _BUILD,
        _cells(e.Killed, (Phase.ROLLBACK,), _waits_for_nothing),
    ),
)


def scenario_of(fault: Fault):
    return next(scenario for scenario in SCENARIOS if scenario.name == fault.scenario)
