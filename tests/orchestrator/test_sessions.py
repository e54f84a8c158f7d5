"""Sessions: order, one turn at a time, fences, holding while ComfyUI renders, and what a dead process leaves."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from comfy_env.orchestrator import messages
from comfy_env.orchestrator.gate import Kind
from comfy_env.orchestrator.problems import Refused, StoreClosed
from comfy_env.orchestrator.sessions import Sessions
from comfy_env.orchestrator.workers import Workers
from comfy_env.testing.echo import GUEST
from comfy_env.values import Busy, EnvPlan

from .kit import ScriptedWorkers, run, service, until


def states(sessions: Sessions, session: str = "s"):
    return sessions.commit(lambda t: messages.message_states(t, session))


def busy(sessions: Sessions) -> set[Kind]:
    return {blocker.kind for blocker in sessions.blockers() if isinstance(blocker.verdict, Busy)}


def test_messages_of_one_agent_are_served_one_at_a_time_in_order(tmp_path: Path):
    async def story():
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as sessions:
            await sessions.open("s", "echo")
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
            await workers.finish()
            await workers.finish()
            await until(lambda: busy(sessions) == set())

    run(story)


def test_behind_the_fence_messages_are_accepted_and_no_turn_begins(tmp_path: Path):
    async def story():
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as sessions:
            await sessions.open("s", "echo")
            sessions.fence(True)
            accepted = await sessions.accept("s", "c", "late")
            assert accepted.fresh and await states(sessions) == {"c": messages.QUEUED}
            assert workers.asked == [] and busy(sessions) == {Kind.QUEUE}
            sessions.fence(False)
            await workers.finish()
            await until(lambda: busy(sessions) == set())

    run(story)


def test_a_turn_that_is_about_to_begin_is_seen_in_the_same_turn_of_the_loop(tmp_path: Path):
    async def story():
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as sessions:
            await sessions.open("s", "echo")
            accepting = asyncio.create_task(sessions.accept("s", "c", "x"))
            while not accepting.done():
                assert busy(sessions) != set() or not accepting.get_coro().cr_frame or not sessions._accepting
                await asyncio.sleep(0)
            assert busy(sessions) & {Kind.QUEUE, Kind.TURN}
            await workers.finish()
            await until(lambda: busy(sessions) == set())

    run(story)


def test_a_message_sent_again_is_answered_with_the_same_number_and_served_once(tmp_path: Path):
    async def story():
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as sessions:
            await sessions.open("s", "echo")
            answers = await asyncio.gather(*(sessions.accept("s", "same", "x") for _ in range(20)))
            assert len({answer.seq for answer in answers}) == 1 and sum(answer.fresh for answer in answers) == 1
            await workers.finish()
            await until(lambda: busy(sessions) == set())
            assert len(workers.asked) == 1

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
            for _ in range(2):
                await workers.finish()
            await until(lambda: busy(after) == set())
            assert [given["text"] for given in workers.asked] == ["one", "two"]

    run(story)


def test_a_turn_that_ran_when_the_process_ended_is_undetermined_and_not_run_again(tmp_path: Path):
    async def story():
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as sessions:
            await sessions.open("s", "echo")
            await sessions.open("safe", "safe")
            await sessions.accept("s", "c", "once")
            await sessions.accept("safe", "c", "twice")
            await until(lambda: len(workers.asked) == 2)
        again = ScriptedWorkers()
        async with service(tmp_path, again) as after:
            await again.finish()
            await until(lambda: busy(after) == set())
            assert [given["text"] for given in again.asked] == ["twice"]
            assert await states(after) == {"c": messages.UNDETERMINED}

    run(story)


def test_what_an_agent_says_and_how_it_fails_is_kept(tmp_path: Path):
    async def story():
        rows, workers = [], ScriptedWorkers()
        async with service(tmp_path, workers, rows) as sessions:
            await sessions.open("s", "echo")
            await sessions.accept("s", "c", "x")
            await until(lambda: workers.asked)
            workers.say({"text": "half way"})
            workers.say("plain")
            await workers.finish(Refused("cannot"))
            await until(lambda: busy(sessions) == set())
        told = [(row.kind, json.loads(row.body).get("text")) for row in rows if row.session == "s"]
        assert told == [("message", "x"), ("turn", None), ("said", "half way"), ("said", "plain"), ("failed", "cannot")]

    run(story)


# ---- holding


def test_messages_of_an_agent_that_shares_the_gpu_are_held_while_comfyui_renders(tmp_path: Path):
    async def story():
        rows, workers = [], ScriptedWorkers()
        async with service(tmp_path, workers, rows) as sessions:
            await sessions.open("s", "gpu")
            await sessions.open("other", "echo")
            await sessions.hold("8f3a")
            for n in range(3):
                await sessions.accept("s", f"c{n}", f"text {n}")
            assert busy(sessions) == {Kind.HELD} and set((await states(sessions)).values()) == {messages.HELD}
            await sessions.accept("other", "c", "not held")
            await workers.finish()
            assert [row.kind for row in rows].count("held") == 1, "one notice per render"
            await sessions.hold("")
            for _ in range(3):
                await workers.finish()
            await until(lambda: busy(sessions) == set())
            assert [given["text"] for given in workers.asked] == ["not held", "text 0", "text 1", "text 2"]

    run(story)


def test_held_messages_outlive_the_process(tmp_path: Path):
    async def story():
        async with service(tmp_path) as sessions:
            await sessions.open("s", "gpu")
            await sessions.hold("8f3a")
            await sessions.accept("s", "c", "x")
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as after:
            assert busy(after) == {Kind.HELD}
            await after.hold("8f3a")
            await after.hold("")
            await workers.finish()
            await until(lambda: busy(after) == set())

    run(story)


def test_send_now_does_not_wait_for_the_render(tmp_path: Path):
    async def story():
        workers = ScriptedWorkers()
        async with service(tmp_path, workers) as sessions:
            await sessions.open("s", "gpu")
            await sessions.hold("8f3a")
            await sessions.accept("s", "c", "now")
            assert await sessions.flush("s") == 1
            await workers.finish()
            await until(lambda: busy(sessions) == set())

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
