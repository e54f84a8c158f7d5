"""The render monitor: three states, a vanished prompt is lost, an end is told exactly once, and the gate around it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from comfy_env.orchestrator import messages, renders
from comfy_env.orchestrator.render import Monitor
from comfy_env.orchestrator.renders import Queue, Render, State
from comfy_env.values import Busy, Idle, Unknown

from .comfyui import ComfyUI
from .kit import run, service, until
from .town import Town, town

pytestmark = pytest.mark.deadline(120)


def test_a_monitor_that_never_got_through_knows_nothing():
    render = Render(since=5.0)
    assert isinstance(render.verdict(), Unknown)
    assert isinstance(render.missed(6.0).missed(7.0).missed(8.0).verdict(), Unknown)
    assert render.missed(6.0).missed(7.0).missed(8.0).since == 5.0


def test_the_third_failure_in_a_row_makes_it_unknown_since_the_first():
    busy = Render().heard(Queue(("p",)), 10.0)
    assert isinstance(busy.missed(11.0).missed(12.0).verdict(), Busy)
    lost = busy.missed(11.0).missed(12.0).missed(13.0)
    assert lost.state is State.UNKNOWN and lost.since == 11.0
    assert busy.missed(11.0).missed(12.0).heard(Queue(), 12.5).missed(13.0).state is State.IDLE


def test_prompts_of_others_that_only_wait_count_as_busy():
    assert isinstance(Render().heard(Queue((), ("theirs",)), 1.0).verdict(), Busy)
    assert isinstance(Render().heard(Queue(), 1.0).verdict(), Idle)


def test_the_same_prompt_is_busy_since_it_began():
    render = Render().heard(Queue(("p",)), 10.0).heard(Queue(("p",)), 20.0)
    assert render.since == 10.0 and render.heard(Queue(("q",)), 30.0).since == 30.0


def test_messages_are_held_for_a_prompt_and_a_while_after_its_comfyui_fell_silent():
    busy = Render().heard(Queue(("p",)), 10.0)
    lost = busy.missed(20.0).missed(20.0).missed(20.0)
    assert [busy.holding(11.0, 120.0), lost.holding(139.0, 120.0), lost.holding(140.0, 120.0)] == ["p", "p", ""]
    new = Render(since=0.0)
    assert new.holding(1.0, 120.0) is None, "one that has not got through yet knows neither to hold nor to queue what is held"
    assert new.holding(120.0, 120.0) == "" == new.heard(Queue(), 1.0).holding(2.0, 120.0)


def rendered(rows: list) -> list[tuple[str, str]]:
    bodies = [json.loads(row.body) for row in rows if row.kind == "render"]
    return [(body["prompt"], body["outcome"]) for body in bodies]


async def watching(folder: Path, comfyui: ComfyUI, rows: list, work) -> None:
    async with service(folder, rows=rows) as sessions:
        monitor = Monitor(comfyui.url, sessions.commit, lambda render: None, poll=0.05)
        await monitor.start()
        try:
            await work(monitor)
        finally:
            await monitor.stop()


def test_ends_are_told_once_and_what_vanished_is_lost(tmp_path: Path):
    async def story():
        rows: list = []
        with ComfyUI() as comfyui:

            async def work(monitor):
                comfyui.running, comfyui.pending = ["good"], ["bad", "gone"]
                await until(lambda: monitor.render.state is State.BUSY and len(monitor._tracked) == 3)
                comfyui.finish("good")
                comfyui.running, comfyui.pending = ["bad"], ["gone"]
                await until(lambda: rendered(rows) == [("good", renders.DONE)])
                comfyui.finish("bad", "error")
                comfyui.pending = []
                await until(lambda: monitor.render.state is State.IDLE and len(rendered(rows)) == 3)

            await watching(tmp_path, comfyui, rows, work)
        assert sorted(rendered(rows)) == [("bad", renders.FAILED), ("gone", renders.LOST), ("good", renders.DONE)]

    run(story)


def test_an_end_during_a_handover_is_told_exactly_once_by_the_successor(tmp_path: Path):
    async def story():
        rows: list = []
        with ComfyUI() as comfyui:

            async def sees(monitor):
                comfyui.running = ["p"]
                await until(lambda: monitor._tracked == {"p"})

            async def waits(monitor):
                await until(lambda: rendered(rows))
                await asyncio.sleep(0.2)

            await watching(tmp_path, comfyui, rows, sees)
            comfyui.finish("p")
            await watching(tmp_path, comfyui, rows, waits)
            await watching(tmp_path, comfyui, rows, lambda monitor: asyncio.sleep(0.2))
        assert rendered(rows) == [("p", renders.DONE)]

    run(story)


def test_an_idle_comfyui_is_asked_one_short_question_per_poll(tmp_path: Path):
    async def story():
        with ComfyUI() as comfyui:

            async def work(monitor):
                await until(lambda: monitor.render.state is State.IDLE)
                comfyui.asked.clear()
                await asyncio.sleep(0.6)
                assert comfyui.asked and {path for path in comfyui.asked if not path.startswith("/ws")} == {"/prompt"}

            await watching(tmp_path, comfyui, [], work)

    run(story)


def test_what_answers_and_is_no_comfyui_is_unknown(tmp_path: Path):
    async def story():
        with ComfyUI() as comfyui:
            comfyui.answer = lambda path: ["something else"]

            async def work(monitor):
                await until(lambda: monitor.render.failed >= 3)
                assert monitor.render.state is State.UNKNOWN

            await watching(tmp_path, comfyui, [], work)

    run(story)


# ---- with a real service


def waiting(here) -> list[str]:
    return here.get("/api/state")["restart"]["waiting"]


def renders_beside_a_session(here: Town, comfyui: ComfyUI) -> None:
    """Start the service with a session of an agent that shares the GPU, while a prompt is rendered."""
    comfyui.running = ["8f3a"]
    here.start()
    here.session("s", "echo-gpu")
    here.wait(lambda: here.get("/api/state")["render"]["state"] == "busy", 20)


def held_one(here: Town, text: str = "text") -> None:
    """Send messages until one is held: what came before the service knew of the render is served."""
    here.wait(lambda: here.send(f"{text} {len(here.ends())}")["state"] == messages.HELD, 20)


def killed(here: Town) -> None:
    """Kill the service and wait until it is gone."""
    os.kill(here.owner["pid"], signal.SIGKILL)
    here.first.wait(20)


def test_a_render_keeps_the_gate_shut_is_named_and_its_end_opens_it(tmp_path: Path):
    with ComfyUI() as comfyui, town(tmp_path, COMFYUI_URL=comfyui.url, UNKNOWN_HOLD_S="600") as here:
        comfyui.running = ["8f3a0000"]
        here.start()
        here.wait(lambda: here.get("/api/state")["render"]["state"] == "busy", 20)
        here.do("restart")
        here.wait(lambda: [line for line in waiting(here) if line.startswith("render: prompt 8f3a0000")], 10)
        assert here.phase() == "armed" and here.attempts() == 0
        comfyui.finish("8f3a0000")
        here.generation(2)


def test_a_comfyui_killed_in_the_middle_of_a_render_opens_the_gate_after_the_hold(tmp_path: Path, record_property):
    with ComfyUI() as comfyui, town(tmp_path, COMFYUI_URL=comfyui.url, UNKNOWN_HOLD_S="6") as here:
        renders_beside_a_session(here, comfyui)
        here.wait(lambda: here.send("held") and True, 5)
        here.do("restart")
        comfyui.kill()
        begun = time.monotonic()
        here.wait(lambda: [line for line in waiting(here) if "render: unknown" in line], 20)
        here.generation(2)
        seconds = time.monotonic() - begun
        record_property("seconds from the kill to the restart", f"{seconds:.1f}")
        assert seconds >= 5, "it did not wait for the hold"
        here.wait(lambda: here.served() == ["held"], 30)
        assert "a restart does not wait any longer for render" in here.words()


@pytest.mark.parametrize("then", ["idle", "off"])
def test_messages_held_when_the_process_was_killed_are_served_by_the_next_one(tmp_path: Path, then: str):
    with ComfyUI() as comfyui, town(tmp_path, COMFYUI_URL=comfyui.url, UNKNOWN_HOLD_S="600") as here:
        renders_beside_a_session(here, comfyui)
        held_one(here)
        killed(here)
        comfyui.finish("8f3a")
        here.environ["COMFY_ENV_ORCH_COMFYUI_URL"] = comfyui.url if then == "idle" else "off"
        here.start()
        here.wait(lambda: all(here.ends().values()) and len(here.served()) == len(here.ends()), 30)


def test_messages_held_before_stay_held_until_it_is_known_whether_comfyui_renders(tmp_path: Path):
    with ComfyUI() as comfyui, town(tmp_path, COMFYUI_URL=comfyui.url, UNKNOWN_HOLD_S="600") as here:
        renders_beside_a_session(here, comfyui)
        held_one(here)
        served = here.served()
        comfyui.kill()
        killed(here)
        here.start()
        until = time.monotonic() + 3.0   # it keeps house every second
        here.wait(lambda: time.monotonic() > until, 10)
        assert here.served() == served and [line for line in waiting(here) if line.startswith("held message: 1")]
        comfyui.start()
        here.wait(lambda: len(here.served()) == len(served) + 1, 30)


def test_held_messages_keep_the_gate_shut_and_are_served_in_order_at_the_end_of_the_render(tmp_path: Path):
    with ComfyUI() as comfyui, town(tmp_path, COMFYUI_URL=comfyui.url, UNKNOWN_HOLD_S="600") as here:
        renders_beside_a_session(here, comfyui)
        held_one(here, "probe")
        held = [here.send(f"text {number}")["state"] for number in range(3)]
        here.do("restart")
        here.wait(lambda: [line for line in waiting(here) if line.startswith("held message")], 10)
        assert held == [messages.HELD] * 3 and here.attempts() == 0
        comfyui.finish("8f3a")
        here.generation(2)
        assert [text for text in here.served() if text.startswith("text")] == ["text 0", "text 1", "text 2"]
