"""Sessions: order, one turn at a time, fences, holding while ComfyUI renders, and what a dead process leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from comfy_env.orchestrator import messages
from comfy_env.orchestrator.gate import Kind
from comfy_env.orchestrator.problems import Refused, StoreClosed, StoreTrouble
from comfy_env.orchestrator.sessions import Sessions
from comfy_env.orchestrator.store import Store
from comfy_env.orchestrator.workers import Workers
from comfy_env.testing.echo import GUEST
from comfy_env.values import Busy, EnvPlan

from .kit import AGENTS, ScriptedWorkers, agent, run, service, until


def states(sessions: Sessions, session: str = "s"):
    return sessions.commit(lambda t: messages.message_states(t, session))


def busy(sessions: Sessions) -> set[Kind]:
    return {blocker.kind for blocker in sessions.blockers() if isinstance(blocker.verdict, Busy)}


@contextlib.asynccontextmanager
async def opened(folder: Path, name: str = "echo", rows: list | None = None) -> AsyncIterator[tuple[Sessions, ScriptedWorkers]]:
    """A service with scripted workers, and in it session s with an agent."""
    workers = ScriptedWorkers()
    async with service(folder, workers, rows) as sessions:
        await sessions.open("s", name)
        yield sessions, workers


async def finished(sessions: Sessions, workers: ScriptedWorkers, turns: int = 1, answer: object = None) -> None:
    """End so many turns with an answer, and wait until there is nothing left to do."""
    for _ in range(turns):
        await workers.finish(answer)
    await until(lambda: busy(sessions) == set())


class Disk:
    """Where the store lies; nothing can be written there while it is full."""

    full = False

    @classmethod
    def of(cls, monkeypatch: pytest.MonkeyPatch) -> Disk:
        disk, own = cls(), Store._must_be_ours

        def must_be_ours(store: Store) -> None:
            own(store)
            if disk.full:
                raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(Store, "_must_be_ours", must_be_ours)
        return disk


def test_messages_of_one_agent_are_served_one_at_a_time_in_order(tmp_path: Path):
    async def story():
        async with opened(tmp_path) as (sessions, workers):
            await asyncio.gather(*(sessions.accept("s", f"c{n}", f"text {n}") for n in range(5)))
            for n in range(5):
                await until(lambda n=n: len(workers.asked) == n + 1)
                assert busy(sessions) >= {Kind.TURN} and ((Kind.QUEUE in busy(sessions)) is (n < 4))
                await workers.finish()
            await until(lambda: busy(sessions) == set())
            assert [given["text"] for given in workers.asked] == [f"text {n}" for n in range(5)]
            assert set((await states(sessions)).values()) == {messages.DONE}

    run(story)


def test_two_agents_work_side_by_side(tmp_path: Path):
    async def story():
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as sessions:
            for name in ("echo", "safe"):
                await sessions.open(name, name)
                await sessions.accept(name, "c", name)
            await until(lambda: len(workers.asked) == 2)
            await finished(sessions, workers, turns=2)

    run(story)


def test_behind_the_fence_messages_are_accepted_and_no_turn_begins(tmp_path: Path):
    async def story():
        async with opened(tmp_path) as (sessions, workers):
            sessions.fence(True)
            accepted = await sessions.accept("s", "c", "late")
            assert accepted.fresh and await states(sessions) == {"c": messages.QUEUED}
            assert workers.asked == [] and busy(sessions) == {Kind.QUEUE}
            sessions.fence(False)
            await finished(sessions, workers)

    run(story)


def test_a_turn_that_is_about_to_begin_is_seen_in_the_same_turn_of_the_loop(tmp_path: Path):
    async def story():
        async with opened(tmp_path) as (sessions, workers):
            accepting = asyncio.create_task(sessions.accept("s", "c", "x"))
            while not accepting.done():
                assert busy(sessions) != set() or not accepting.get_coro().cr_frame or not sessions._accepting
                await asyncio.sleep(0)
            assert busy(sessions) & {Kind.QUEUE, Kind.TURN}
            await finished(sessions, workers)

    run(story)


def test_a_message_sent_again_is_answered_with_the_same_number_and_served_once(tmp_path: Path):
    async def story():
        async with opened(tmp_path) as (sessions, workers):
            answers = await asyncio.gather(*(sessions.accept("s", "same", "x") for _ in range(20)))
            assert len({answer.seq for answer in answers}) == 1 and sum(answer.fresh for answer in answers) == 1
            await finished(sessions, workers)
            assert len(workers.asked) == 1

    run(story)


@pytest.mark.parametrize("turns_before", range(5))
def test_a_message_in_the_last_moment_is_accepted_by_one_of_the_two_and_its_resend_is_served_once(tmp_path: Path, turns_before: int):
    """Thirty messages are on their way when the old owner lets go, a few turns of the loop later or at once."""

    async def sent(sessions: Sessions, number: int) -> bool:
        try:
            await sessions.accept("s", f"c{number}", f"text {number}")
        except StoreClosed:
            return False
        return True

    async def story():
        async with service(tmp_path) as old:
            await old.open("s", "echo")
            old.fence(True)
            sending = [asyncio.ensure_future(sent(old, number)) for number in range(30)]
            for _ in range(turns_before):
                await asyncio.sleep(0)
            store = old._store
            await old.stop()
            await asyncio.to_thread(store.close)
            accepted = await asyncio.gather(*sending)
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as new:
            kept = set(await states(new))
            assert kept == {f"c{number}" for number, was in enumerate(accepted) if was}, "told one thing, kept another"
            assert all(await asyncio.gather(*(sent(new, number) for number in range(30))))
            await finished(new, workers, turns=30)
            assert sorted(given["text"] for given in workers.asked) == sorted(f"text {number}" for number in range(30))

    run(story)


def test_what_the_next_owner_finds_queued_it_runs(tmp_path: Path):
    async def story():
        async with service(tmp_path) as sessions:
            await sessions.open("s", "echo")
            sessions.fence(True)
            await sessions.accept("s", "c1", "one")
            await sessions.accept("s", "c2", "two")
        with pytest.raises(StoreClosed):
            await sessions.accept("s", "c3", "three")
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as after:
            await finished(after, workers, turns=2)
            assert [given["text"] for given in workers.asked] == ["one", "two"]

    run(story)


def test_a_turn_that_ran_when_the_process_ended_is_undetermined_and_not_run_again(tmp_path: Path):
    async def story():
        async with opened(tmp_path) as (sessions, workers):
            await sessions.open("safe", "safe")
            await sessions.accept("s", "c", "once")
            await sessions.accept("safe", "c", "twice")
            await until(lambda: len(workers.asked) == 2)
        again = ScriptedWorkers()
        async with service(tmp_path, again) as after:
            await finished(after, again)
            assert [given["text"] for given in again.asked] == ["twice"]
            assert await states(after) == {"c": messages.UNDETERMINED}

    run(story)


def test_what_an_agent_says_and_how_it_fails_is_kept(tmp_path: Path):
    async def story():
        rows: list = []
        async with opened(tmp_path, rows=rows) as (sessions, workers):
            await sessions.accept("s", "c", "x")
            await until(lambda: workers.asked)
            workers.say({"text": "half way"})
            workers.say("plain")
            await finished(sessions, workers, answer=Refused("cannot"))
        told = [(row.kind, json.loads(row.body).get("text")) for row in rows if row.session == "s"]
        assert told == [("message", "x"), ("turn", None), ("said", "half way"), ("said", "plain"), ("failed", "cannot")]

    run(story)


# ---- holding


def test_messages_of_an_agent_that_shares_the_gpu_are_held_while_comfyui_renders(tmp_path: Path):
    async def story():
        rows: list = []
        async with opened(tmp_path, "gpu", rows=rows) as (sessions, workers):
            await sessions.open("other", "echo")
            await sessions.hold("8f3a")
            for n in range(3):
                await sessions.accept("s", f"c{n}", f"text {n}")
            assert busy(sessions) == {Kind.HELD} and set((await states(sessions)).values()) == {messages.HELD}
            await sessions.accept("other", "c", "not held")
            await workers.finish()
            assert [row.kind for row in rows].count("held") == 1, "one notice per render"
            await sessions.hold("")
            await finished(sessions, workers, turns=3)
            assert [given["text"] for given in workers.asked] == ["not held", "text 0", "text 1", "text 2"]

    run(story)


def held_then(tmp_path: Path, after_restart):
    """Hold a message, end the process, and go on with another one."""

    async def story():
        async with service(tmp_path) as sessions:
            await sessions.open("s", "gpu")
            await sessions.hold("8f3a")
            await sessions.accept("s", "c", "x")
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as after:
            await after_restart(after, workers)

    run(story)


def test_held_messages_outlive_the_process(tmp_path: Path):
    async def still_held(after: Sessions, workers: ScriptedWorkers):
        assert busy(after) == {Kind.HELD}
        await after.hold("8f3a")
        await after.hold("")
        await finished(after, workers)

    held_then(tmp_path, still_held)


def test_send_now_does_not_wait_for_the_render(tmp_path: Path):
    async def story():
        async with opened(tmp_path, "gpu") as (sessions, workers):
            await sessions.hold("8f3a")
            await sessions.accept("s", "c", "now")
            assert await sessions.flush("s") == 1
            await finished(sessions, workers)

    run(story)


def test_what_was_held_is_served_where_the_render_ended_while_nobody_served(tmp_path: Path):
    async def idle(after: Sessions, workers: ScriptedWorkers):
        await after.hold("")
        await finished(after, workers)

    held_then(tmp_path, idle)


def test_a_held_message_whose_agent_is_gone_keeps_neither_the_others_nor_the_gate(tmp_path: Path, monkeypatch):
    other = agent("gpu2", shares_gpu=True)

    async def story():
        with monkeypatch.context() as patch:
            patch.setitem(AGENTS, "gpu2", other)
            async with service(tmp_path) as sessions:
                await sessions.hold("8f3a")
                for session, name in (("a", "gpu2"), ("b", "gpu")):
                    await sessions.open(session, name)
                    await sessions.accept(session, "c", name)
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as after:
            await after.hold("")
            await finished(after, workers)
            assert [given["text"] for given in workers.asked] == ["gpu"]
            assert await states(after, "a") == {"c": messages.QUEUED}, "it waits until its agent is back"

    run(story)


def test_a_message_that_is_being_accepted_when_the_render_ends_is_served(tmp_path: Path):
    """It is committed as held while the loop, which does not know it yet, hears that the render is over."""

    async def story():
        async with opened(tmp_path, "gpu") as (sessions, workers):
            await sessions.hold("8f3a")
            accepting = asyncio.create_task(sessions.accept("s", "c", "x"))
            await asyncio.sleep(0)
            sessions._store.write(lambda t: None).result(10)   # the loop stands still: the message is committed, nobody was told
            await sessions.hold("")
            assert (await accepting).state == messages.HELD
            await sessions.hold("")
            await finished(sessions, workers)

    run(story)


def test_what_could_not_be_queued_at_the_end_of_a_render_is_queued_later(tmp_path: Path, monkeypatch):
    disk = Disk.of(monkeypatch)

    async def story():
        async with opened(tmp_path, "gpu") as (sessions, workers):
            await sessions.hold("8f3a")
            await sessions.accept("s", "c", "x")
            disk.full = True
            with pytest.raises(StoreTrouble):
                await sessions.hold("")
            assert busy(sessions) == {Kind.HELD}
            disk.full = False
            await sessions.hold("")
            await finished(sessions, workers)

    run(story)


# ---- refusals


def test_an_unknown_agent_or_session_is_refused_by_name(tmp_path: Path):
    async def story():
        async with service(tmp_path) as sessions:
            with pytest.raises(Refused, match="no agent 'nobody'; there are echo, gpu, safe"):
                await sessions.open("s", "nobody")
            with pytest.raises(Refused, match="no session 's'"):
                await sessions.accept("s", "c", "x")

    run(story)


def test_the_end_of_a_turn_waits_for_a_disk_that_is_full_and_is_not_lost(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("comfy_env.orchestrator.sessions._PAUSE", 0.02)
    disk = Disk.of(monkeypatch)

    async def story():
        rows: list = []
        async with opened(tmp_path, rows=rows) as (sessions, workers):
            await sessions.accept("s", "c1", "one")
            await until(lambda: len(workers.asked) == 1)
            disk.full = True
            await workers.finish({"text": "the reply"})
            with pytest.raises(StoreTrouble, match="disk is full"):
                await sessions.accept("s", "c2", "two")
            assert Kind.TURN in busy(sessions), "the gate may open over a reply that is not kept"
            disk.full = False
            await until(lambda: busy(sessions) == set())
            assert [json.loads(row.body)["text"] for row in rows if row.kind == messages.DONE] == ["the reply"]
            assert (await states(sessions)) == {"c1": messages.DONE}

    run(story)


def test_a_call_that_fails_in_a_way_of_its_own_ends_its_turn(tmp_path: Path, caplog):
    async def story():
        rows: list = []
        async with opened(tmp_path, rows=rows) as (sessions, workers):
            await sessions.accept("s", "c", "x")
            await finished(sessions, workers, answer=OSError("no such interpreter"))
            assert await states(sessions) == {"c": messages.FAILED}
        told = [json.loads(row.body) for row in rows if row.kind == messages.FAILED]
        assert told == [{"error": "OSError", "text": "no such interpreter"}]

    run(story)
    assert "could not be asked" in caplog.text


def looped() -> list:
    value: list = []
    value.append(value)
    return value


@pytest.mark.parametrize("answer", [{("a", "tuple"): 1}, {"loss": float("nan")}, looped(), {"at": Path("x")}], ids=repr)
def test_an_answer_that_json_cannot_hold_is_shown_as_text_and_any_client_can_read_it(tmp_path: Path, answer: object):
    def no_number(word: str):
        raise AssertionError(f"{word} is not JSON")

    async def story():
        rows: list = []
        async with opened(tmp_path, rows=rows) as (sessions, workers):
            await sessions.accept("s", "c", "x")
            await until(lambda: workers.asked)
            workers.say(answer)
            await finished(sessions, workers, answer=answer)
            assert await states(sessions) == {"c": messages.DONE}
        bodies = [row.body for row in rows if row.kind in ("said", messages.DONE)]
        assert len(bodies) == 2 and all(json.loads(body, parse_constant=no_number) for body in bodies)

    run(story)


# ---- with a real worker


def test_the_echo_agent_speaks_from_a_real_worker_and_its_pool_ends(tmp_path: Path):
    plan = EnvPlan.existing(sys.executable, "echo", import_roots=(GUEST,))

    async def story():
        rows, workers = [], Workers()
        try:
            async with service(tmp_path, workers, rows) as sessions:
                object.__setattr__(sessions.agents["echo"], "plan", plan)
                await sessions.open("s", "echo")
                await sessions.accept("s", "c1", "say one; two")
                await until(lambda: Kind.CALL in busy(sessions), 30)
                await until(lambda: busy(sessions) == set(), 60)
                await sessions.accept("s", "c2", "fail on purpose")
                await until(lambda: any(row.kind == messages.FAILED for row in rows), 60)
                assert workers.rows()[0]["env"] == "echo"
        finally:
            await asyncio.to_thread(workers.close)
        assert workers.rows() == []
        said = [json.loads(row.body)["text"] for row in rows if row.kind in ("said", "done")]
        assert said == ["one", "two"]
        assert "on purpose" in [json.loads(row.body)["text"] for row in rows if row.kind == "failed"][0]

    run(story, 80)
