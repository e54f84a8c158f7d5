"""The idle gate: every combination of what blockers say, judged; each blocker alone keeps it shut and is named."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial

import pytest

from comfy_env.orchestrator import gate as gates
from comfy_env.orchestrator.gate import MUST_SPEAK, Blocker, Gate, Kind, in_words, judge
from comfy_env.values import Busy, Idle, Unknown

NOW, HOLD, OVERDUE = 10_000.0, 120.0, 600.0
KINDS = sorted(Kind, key=lambda kind: kind.value)
VERDICTS = {
    "idle": Idle(),
    "busy": Busy("it works", NOW - 5),
    "unsure": Unknown("no answer", NOW - 5),
    "long unsure": Unknown("no answer", NOW - 1000),
}
ALL_IDLE = tuple(Blocker(kind, Idle()) for kind in KINDS)
Judge = Callable[[Iterable[Blocker]], Gate]


def judged(blockers: Iterable[Blocker], **more) -> Gate:
    return judge(blockers, NOW, hold=HOLD, overdue=OVERDUE, **more)


def alone(kind: Kind, verdict) -> list[Blocker]:
    return [Blocker(other, verdict if other is kind else Idle(), "8f3a" if other is kind else "") for other in KINDS]


def expected_open(said: dict[Kind, str]) -> bool:
    """The contract in words: everybody says idle, but a render of which nothing was known for the hold is no reason."""
    return all(word == "idle" or (kind is Kind.RENDER and word == "long unsure") for kind, word in said.items())


def combinations() -> Iterable[dict[Kind, str]]:
    return (dict(zip(KINDS, words, strict=True)) for words in itertools.product(VERDICTS, repeat=len(KINDS)))


def first_wrong(judge_all: Judge) -> dict[Kind, str] | None:
    for said in combinations():
        found = judge_all([Blocker(kind, VERDICTS[word]) for kind, word in said.items()])
        named = {waiting.kind for waiting in found.waiting}
        shut = {kind for kind, word in said.items() if not expected_open({kind: word})}
        if found.open is not expected_open(said) or named != shut:
            return said
    return None


def test_every_combination_is_judged_as_the_contract_says(record_property):
    record_property("combinations", len(VERDICTS) ** len(KINDS))
    assert first_wrong(judged) is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
@pytest.mark.parametrize("word", ["busy", "unsure"])
def test_each_blocker_alone_keeps_it_shut_and_is_named(kind: Kind, word: str):
    found = judged(alone(kind, VERDICTS[word]))
    assert not found.open
    assert [(waiting.kind, waiting.title) for waiting in found.waiting] == [(kind, f"{kind.value} 8f3a")]


@pytest.mark.parametrize("kind", sorted(MUST_SPEAK, key=lambda kind: kind.value), ids=lambda kind: kind.value)
def test_a_kind_that_nobody_reports_keeps_it_shut(kind: Kind):
    found = judged([blocker for blocker in ALL_IDLE if blocker.kind is not kind])
    assert [str(waiting) for waiting in found.waiting] == [f"{kind.value}: unknown: nobody reports it (0 s)"]


def test_nobody_speaking_is_not_idle():
    assert not judged([]).open


def test_an_unknown_render_opens_after_the_hold_and_says_that_it_assumes():
    unsure = Unknown("ComfyUI does not answer", NOW - HOLD)
    found = judged(alone(Kind.RENDER, unsure))
    assert found.open and [waiting.reason for waiting in found.assumed] == ["unknown: ComfyUI does not answer"]
    assert not judge(alone(Kind.RENDER, unsure), NOW - 0.1, hold=HOLD, overdue=OVERDUE).open


def test_a_plugin_that_is_unsure_for_ten_minutes_is_announced_and_still_waited_for():
    found = judged(alone(Kind.PLUGIN, Unknown("no answer", NOW - OVERDUE)))
    assert not found.open and [waiting.title for waiting in found.overdue] == ["plugin 8f3a"]
    assert judged(alone(Kind.PLUGIN, Unknown("no answer", NOW - OVERDUE + 1))).overdue == ()


def test_somebodys_wish_does_not_wait_for_the_uptime_but_for_everything_else():
    assert judged(alone(Kind.UPTIME, VERDICTS["busy"]), asked=True).open
    assert not judged(alone(Kind.TURN, VERDICTS["busy"]), asked=True).open


def test_several_of_one_kind_are_all_named():
    found = judged([*ALL_IDLE, Blocker(Kind.PLUGIN, Busy("a", NOW - 60), "one"), Blocker(Kind.PLUGIN, Busy("b", NOW - 720), "two")])
    assert [str(waiting) for waiting in found.waiting] == ["plugin one: a (60 s)", "plugin two: b (12 min)"]


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (89, "89 s"), (90, "2 min"), (720, "12 min")])
def test_a_wait_is_told_in_words(seconds: float, words: str):
    assert in_words(seconds) == words


# ---- the checks of the checks


def _forgets(kind: Kind) -> Judge:
    return lambda blockers: judged([blocker if blocker.kind is not kind else Blocker(kind, Idle()) for blocker in blockers])


def _unknown_is_idle(blockers: Iterable[Blocker]) -> Gate:
    return judged([Blocker(b.kind, Idle()) if isinstance(b.verdict, Unknown) else b for b in blockers])


def _every_unknown_expires(blockers: Iterable[Blocker]) -> Gate:
    return judged([Blocker(b.kind, Idle()) if b.verdict is VERDICTS["long unsure"] else b for b in blockers])


FAULTS: dict[str, Judge] = {
    **{f"{kind.value} is forgotten": _forgets(kind) for kind in KINDS},
    "unknown counts as idle": _unknown_is_idle,
    "every unknown expires": _every_unknown_expires,
    "nothing expires": partial(judge, now=NOW, hold=1e9, overdue=OVERDUE),
    "everything expires at once": partial(judge, now=NOW, hold=0.0, overdue=OVERDUE),
    "a wish skips the uptime always": partial(judged, asked=True),
    "only the first is named": lambda blockers: Gate(judged(blockers).waiting[:1]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str):
    wrong = first_wrong(FAULTS[name])
    assert wrong is not None
    print(name, {kind.value: word for kind, word in wrong.items() if word != "idle"})


def test_the_gate_reads_no_clock():
    assert not {"time", "threading", "os"} & set(vars(gates))
