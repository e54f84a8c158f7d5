"""What must hold at every step of the restart machine, as named predicates; each returns what is wrong, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from comfy_env.orchestrator import effects as f
from comfy_env.orchestrator import events as e
from comfy_env.orchestrator.restart import Mode, Phase
from comfy_env.orchestrator.state import OPEN, next_due
from comfy_env.orchestrator.target import Kind

from .restart_world import Moment

LIMITED = frozenset(Phase) - {Phase.IDLE, Phase.STAGED, Phase.ARMED, Phase.COOLDOWN, Phase.EXIT}
FENCED = frozenset(
    {
        Phase.GATE_OPEN,
        Phase.APPLYING,
        Phase.FENCED,
        Phase.SPAWNED,
        Phase.PROVEN,
        Phase.COMMITTED,
        Phase.CONFIRMING,
        Phase.ROLLBACK,
    }
)
Predicate = Callable[[Moment], str]


def one_writer(m: Moment) -> str:
    """The word is given when the store is closed, and taken back when nothing of the replacement is left."""
    if m.each(f.SendCommit) and m.then.ours:
        return "the word is given while the store is ours"
    return "the store is taken back while the replacement may write" if m.each(f.TakeBack) and m.world.word else ""


def one_replacement(m: Moment) -> str:
    """The next replacement is started when nothing of the former one is left."""
    return "a second replacement is started" if m.each(f.Spawn) and m.world.voice is not None else ""


def workers_end_first(m: Moment) -> str:
    """The store is given up when no worker is left."""
    return "the store is given up with workers alive" if m.each(f.Yield) and not m.world.pool_ended else ""


def it_always_serves(m: Moment) -> str:
    """Whenever nothing is under way, this process serves: store ours, fence down, files as they were."""
    if m.after.phase not in OPEN:
        return ""
    if not m.then.ours:
        return f"{m.after.phase.value} without the store"
    if m.then.fence:
        return f"{m.after.phase.value} behind the fence"
    kept = m.then.changed and m.after.restored and m.before.phase not in OPEN
    return f"{m.after.phase.value} with changed files and nothing said" if kept else ""


def the_fence_is_up(m: Moment) -> str:
    """While an attempt is under way nothing may start."""
    return f"{m.after.phase.value} without the fence" if m.after.phase in FENCED and not m.then.fence else ""


def every_wait_has_a_limit(m: Moment) -> str:
    return f"{m.after.phase.value} without a limit" if m.after.phase in LIMITED and m.after.due is None else ""


def the_fence_has_one_limit(m: Moment) -> str:
    """From the fence to the word it takes no longer than the fence's limit, whatever happens in between."""
    limited = (Phase.APPLYING, Phase.FENCED, Phase.SPAWNED, Phase.PROVEN)
    if m.after.phase not in limited:
        return ""
    was, fence = m.before.fence_due, m.after.fence_due
    if fence is None or (m.after.due or 0) > fence:
        return "the limit is beyond the fence's"
    return "the fence's limit was moved" if m.before.phase in limited and was != fence else ""


def a_due_tick_does_something(m: Moment) -> str:
    if not isinstance(m.event, e.Tick):
        return ""
    due, again = next_due(m.before), next_due(m.after)
    if due is None or due > m.now:
        return "" if m.after is m.before else "a tick that was not due did something"
    return "a tick is due again at once" if again is not None and again <= m.now else ""


def old_news_changes_nothing(m: Moment) -> str:
    if not isinstance(m.event, e.News) or m.event.attempt == m.before.attempt:
        return ""
    return "" if m.after is m.before and not m.effects else f"old news was heard: {type(m.event).__name__}"


def a_tree_is_tried_once(m: Moment) -> str:
    """What failed is not tried again by itself: no restart loop."""
    tried = [what for what, _ in m.then.tried]
    twice = {what for what in tried if what.startswith("tree") and tried.count(what) > 1}
    return f"{min(twice)} is tried again by itself" if twice else ""


def a_version_rests(m: Moment) -> str:
    """A version that failed is tried again after 1, 2, 4 … minutes."""
    times = [at for what, at in m.then.tried if what == "2.0"]
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    early = [gap for number, gap in enumerate(gaps) if gap < 60 * 2**number - 0.001]
    return f"a version is tried again after {early[0]:g} s" if early else ""


def updates_are_capped(m: Moment) -> str:
    """No more automatic updates within an hour than the rules allow."""
    recent = [what for what, at in m.then.tried if what[0].isdigit() and m.now - at < 3600]
    return f"{len(recent)} updates within an hour" if len(recent) > m.after.rules.updates else ""


def switches_hold(m: Moment) -> str:
    """Switched off: no check, no restart by itself. Told only: no restart by itself. By hand works."""
    rules = m.after.rules
    if m.each(f.Check) and not rules.automatic:
        return "a check though everything is off"
    restarts = rules.automatic and rules.autorestart
    return "a restart by itself though it is off" if m.each(f.RaiseFence) and not restarts and not m.after.by_hand else ""


def by_hand_works(m: Moment) -> str:
    """A wish arms, unless something is under way or nobody would start us again."""
    if not isinstance(m.event, e.Asked) or m.before.phase not in OPEN or m.after.rules.mode is Mode.NOTIFY:
        return ""
    return "" if m.after.phase is Phase.ARMED and m.after.by_hand else "a wish was not heard"


def the_way_is_ours(m: Moment) -> str:
    """Under a supervisor nothing is spawned and the way ends with 75; where nobody would start us nothing happens."""
    mode = m.after.rules.mode
    if m.each(f.Spawn) and mode is not Mode.SPAWN:
        return "spawned under a supervisor"
    if m.each(f.RaiseFence) and mode is Mode.NOTIFY:
        return "a restart where nobody would start us again"
    return "75 without a supervisor" if any(x.code == 75 for x in m.each(f.Leave)) and mode is not Mode.SUPERVISED else ""


def leaving_is_earned(m: Moment) -> str:
    """A process leaves when its successor was confirmed or said goodbye, when asked, or without its store; no replacement stays alone."""
    for leave in m.each(f.Leave):
        if leave.handed_over:
            if not m.then.released:
                return "left without a confirmed successor"
        elif leave.code == 0 and not m.world.stop:
            return "left without being asked"
        elif m.world.voice is not None and not m.before.undo:
            return "left with a replacement alive"
    return ""


def people_hear_the_end(m: Moment) -> str:
    """Whoever heard that it restarts now hears that it failed, or sees the successor."""
    return f"{m.after.phase.value}, and nobody was told that it failed" if m.after.phase in OPEN and m.then.now_told else ""


def the_stop_is_heard(m: Moment) -> str:
    """Asked to end: this process ends, passes it on to the successor that has the word, or remembers it on the way back."""
    if not isinstance(m.event, e.StopWanted) or m.before.phase in (Phase.EXIT, Phase.DRAINING):
        return ""
    return "" if m.each(f.Leave) or m.after.stopping else "the wish to end was forgotten"


def exit_is_final(m: Moment) -> str:
    return "something happened after the exit" if m.before.phase is Phase.EXIT and (m.after is not m.before or m.effects) else ""


def people_are_told_once(m: Moment) -> str:
    """Of one staged thing people are told once."""
    again = [note.line for note in m.each(f.Note) if "ready;" in note.line and note.line in m.world.noted and "hour" not in note.line]
    return f"told again: {again[0]}" if again else ""


def only_versions_change_files(m: Moment) -> str:
    return "files are changed for no version" if any(x.target.kind is not Kind.VERSION for x in m.each(f.Apply)) else ""


RULES: tuple[Predicate, ...] = (
    one_writer,
    one_replacement,
    workers_end_first,
    it_always_serves,
    the_fence_is_up,
    every_wait_has_a_limit,
    the_fence_has_one_limit,
    a_due_tick_does_something,
    old_news_changes_nothing,
    a_tree_is_tried_once,
    a_version_rests,
    updates_are_capped,
    switches_hold,
    by_hand_works,
    the_way_is_ours,
    leaving_is_earned,
    people_hear_the_end,
    the_stop_is_heard,
    exit_is_final,
    people_are_told_once,
    only_versions_change_files,
)


def broken(moment: Moment) -> Iterator[tuple[str, str]]:
    for rule in RULES:
        wrong = rule(moment)
        if wrong:
            yield rule.__name__, wrong
