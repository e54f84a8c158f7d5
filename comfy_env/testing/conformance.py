"""The lifecycle contract as a test class: subclass it, say what your backend is, run pytest.

::

    from comfy_env.testing.conformance import BackendContract

    class TestMine(BackendContract):
        @pytest.fixture
        def backend(self):
            return MyBackend()

Every rule the backend's `capabilities` claim is run through a real pool with real workers; a rule that needs a
capability the backend does not claim is skipped by that capability's name. Override the fixture `plan` where your
backend needs more than an existing interpreter.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from comfy_env import errors
from comfy_env.process.launch import command
from comfy_env.settings import Settings
from comfy_env.testing.audit import Audit, alive, wait_until
from comfy_env.testing.stage import GUEST, LIMIT, PROBE, Stage, needs
from comfy_env.values import CAPABILITIES, EnvPlan, Killed, Launch

LARGE = 1 << 20
"""Bytes of a value that is no part of its message."""


class BackendContract:
    """The rules of the lifecycle contract over one backend."""

    @pytest.fixture
    def backend(self) -> Any:
        """Return the backend under test; every subclass overrides this."""
        pytest.fail(f"{type(self).__name__} has no `backend` fixture: return the backend under test from one", pytrace=False)

    @pytest.fixture
    def plan(self, tmp_path: Path) -> EnvPlan:
        """Return the plan workers are made for: this very interpreter, unless overridden."""
        return EnvPlan.existing(sys.executable, key="contract")

    @pytest.fixture
    def settings(self) -> Settings:
        """Return the pool's settings; those of the environment, unless overridden."""
        return replace(Settings.read(), crash_limit=100)

    @pytest.fixture
    def stage(self, request: pytest.FixtureRequest, backend: Any, plan: EnvPlan, tmp_path: Path, settings: Settings) -> Iterator[Stage]:
        folder = tmp_path / "contract"
        folder.mkdir()
        sys.modules.pop(PROBE, None)
        audit = Audit()
        stage = Stage(backend, plan, folder, settings)
        try:
            lacking = [name for name in getattr(request.function, "contract_needs", ()) if name not in stage.relay.capabilities]
            if lacking:
                pytest.skip(f"the backend does not claim {', '.join(lacking)}")
            yield stage
        finally:
            stage.close()
        left = audit.settle()
        assert not left, "after close there is still: " + "; ".join(left)

    # ---- what it says of itself

    def test_its_capabilities_are_known(self, stage: Stage) -> None:
        assert stage.relay.capabilities <= CAPABILITIES

    # ---- birth

    def test_nothing_is_born_before_the_first_call(self, stage: Stage) -> None:
        stage.pool.inspect(stage.plan, probe=False)
        stage.pool.records()
        stage.pool.story(stage.plan)
        assert (stage.spy.spawns, stage.pool.record(stage.plan)) == (0, None)

    def test_a_function_given_by_name_runs_in_the_worker(self, stage: Stage) -> None:
        assert stage.call("add", 40, 2) == 42

    def test_spawn_returns_without_waiting_for_readiness(self, stage: Stage) -> None:
        stage.call("add", 1)
        assert stage.spy.spawn_seconds[0] < stage.pool.settings.spawn
        assert stage.spy.told[:3] == ["spawn", "transport", "verify"]

    def test_many_callers_of_a_cold_environment_share_one_spawn(self, stage: Stage) -> None:
        futures = [stage.start("add", number) for number in range(24)]
        assert [future.result(LIMIT) for future in futures] == list(range(24))
        assert stage.spy.spawns == 1

    def test_the_row_unpacks_as_worker_and_generation(self, stage: Stage) -> None:
        stage.call("add", 1)
        worker, generation = stage.pool.record(stage.plan)  # type: ignore[misc]
        assert generation == worker.generation == 1

    def test_a_worker_that_does_not_prove_itself_is_refused_and_ended(self, stage: Stage) -> None:
        stage.spy.lies = True
        with pytest.raises(errors.TransportRefused):
            stage.call("add", 1)
        wait_until(lambda: "kill" in stage.spy.told, LIMIT, "the refused worker is ended")

    def test_what_a_wrapper_changes_is_what_the_backend_is_given(self, stage: Stage) -> None:
        stage.spy.variables = {"CONTRACT_WORD": "from the wrapper"}
        stage.call("add", 1)
        assert stage.spy.launches[0].variables["CONTRACT_WORD"] == "from the wrapper"
        if "own_process" in stage.relay.capabilities:
            assert stage.call("variable", "CONTRACT_WORD") == "from the wrapper"

    # ---- life

    def test_one_worker_serves_call_after_call(self, stage: Stage) -> None:
        first = stage.call("count")
        assert [stage.call("count") for _ in range(5)] == list(range(first + 1, first + 6))

    def test_one_call_at_a_time_has_the_lane(self, stage: Stage) -> None:
        futures = [stage.start("alone", str(stage.folder)) for _ in range(16)]
        assert all(future.result(LIMIT) for future in futures)

    def test_a_function_that_raises_fails_its_call_only(self, stage: Stage) -> None:
        with pytest.raises(errors.NodeRaised, match="no such cat"):
            stage.call("fail", "no such cat")
        assert stage.call("add", 1, 1) == 2
        assert stage.spy.spawns == 1

    def test_an_interrupt_ends_the_call_and_the_worker_lives(self, stage: Stage) -> None:
        held = stage.held()
        assert stage.pool.interrupt(stage.plan)
        with pytest.raises(errors.Interrupted):
            held.result(LIMIT)
        assert stage.call("add", 1, 1) == 2
        assert stage.spy.spawns == 1

    def test_a_release_brings_a_measured_receipt(self, stage: Stage) -> None:
        stage.call("add", 1)
        receipt = stage.pool.release(stage.plan)
        assert receipt is not None and receipt.freed >= 0 and receipt.held >= 0

    # ---- death

    @needs("survives_crash")
    @pytest.mark.parametrize("how, told", [("exit", "status 0"), ("kill", "SIGKILL"), ("segv", "SIGSEGV")])
    def test_a_crash_fails_the_call_by_name_and_the_next_call_is_served(self, stage: Stage, how: str, told: str) -> None:
        with pytest.raises(errors.WorkerCrashed) as caught:
            stage.call("die", how)
        assert (caught.value.env, caught.value.generation) == (stage.plan.key, 1)
        assert told in caught.value.status
        assert stage.call("add", 1, 1) == 2
        record = stage.pool.record(stage.plan)
        assert record is not None and record.generation == 2

    @needs("survives_crash")
    def test_a_crash_tells_the_workers_last_words(self, stage: Stage) -> None:
        with pytest.raises(errors.WorkerCrashed) as caught:
            stage.call("die", "exit")
        assert "last words" in caught.value.output

    @needs("survives_crash")
    def test_callers_that_wait_are_served_by_the_next_generation(self, stage: Stage) -> None:
        held = stage.held()
        waiting = [stage.start("add", number) for number in range(4)]
        os.kill(_pid(stage), 9)
        with pytest.raises(errors.WorkerCrashed):
            held.result(LIMIT)
        assert [future.result(LIMIT) for future in waiting] == list(range(4))

    @needs("killable")
    def test_a_kill_ends_the_worker_and_everything_it_started(self, stage: Stage) -> None:
        me, child = stage.call("whoami")["pid"], stage.call("with_child")
        assert alive(child)
        stage.pool.kill(stage.plan)
        wait_until(lambda: not alive(child), LIMIT, "the worker's child is gone")
        assert "own_process" not in stage.relay.capabilities or not alive(me)

    @needs("killable")
    def test_a_kill_in_mid_call_fails_it_by_name_and_the_next_is_served(self, stage: Stage) -> None:
        held = stage.held("hold_native")
        stage.pool.kill(stage.plan)
        with pytest.raises(errors.CallFailed):
            held.result(LIMIT)
        assert stage.call("add", 1, 1) == 2
        record = stage.pool.record(stage.plan)
        assert record is not None and record.generation == 2

    def test_a_worker_that_was_killed_forgot_everything(self, stage: Stage) -> None:
        stage.call("add", 1)
        stage.pool.kill(stage.plan)
        assert stage.call("add", 1, 1) == 2
        record = stage.pool.record(stage.plan)
        assert record is not None and (record.generation, record.calls) == (2, 1)

    def test_kill_may_be_called_twice(self, stage: Stage) -> None:
        stage.call("add", 1)
        process = stage.spy.processes[0]
        answers = [stage.relay.kill(process, "asked", False) for _ in range(2)]
        assert all(isinstance(answer, Killed) for answer in answers)

    def test_a_worker_that_cannot_be_killed_is_told_as_wedged_and_has_no_twin(self, stage: Stage) -> None:
        if "killable" in stage.relay.capabilities:
            pytest.skip("the backend claims killable")
        held = stage.held("hold_native")
        stage.pool.kill(stage.plan)
        with pytest.raises(errors.ComfyEnvError):
            held.result(LIMIT)
        with pytest.raises(errors.Wedged):
            stage.call("add", 1)
        assert stage.spy.spawns == 1
        stage.go()
        wait_until(lambda: _served(stage), LIMIT, "the abandoned call ended and the next generation is born")
        record = stage.pool.record(stage.plan)
        assert record is not None and record.generation == 2

    def test_after_close_nothing_is_born(self, stage: Stage) -> None:
        stage.call("add", 1)
        stage.pool.close()
        with pytest.raises(errors.PoolClosed):
            stage.call("add", 1)
        assert stage.spy.spawns == 1

    def test_the_story_tells_of_every_generation(self, stage: Stage) -> None:
        stage.call("add", 1)
        stage.pool.kill(stage.plan)
        stage.call("add", 1)
        story = "\n".join(stage.pool.story(stage.plan))
        assert "1" in story and "2" in story and len(story.splitlines()) > 3

    # ---- what else may be claimed

    @needs("own_process")
    def test_its_worker_is_a_process_of_its_own(self, stage: Stage) -> None:
        pid = stage.call("whoami")["pid"]
        assert pid != os.getpid()
        if "remote" not in stage.relay.capabilities:
            assert alive(pid)
            assert os.getpgid(pid) != os.getpgid(0)

    @needs("own_dependencies")
    def test_what_a_worker_imports_is_not_imported_here(self, stage: Stage) -> None:
        stage.call("add", 1)
        assert PROBE not in sys.modules
        assert str(GUEST) not in sys.path

    @needs("passes_descriptors")
    def test_its_lanes_are_descriptors_that_can_carry_others(self, stage: Stage) -> None:
        stage.call("add", 1)
        assert all(isinstance(lane.fileno(), int) for lane in (stage.spy.lanes[0].main, stage.spy.lanes[0].side))

    @needs("zero_copy_cpu")
    def test_a_large_value_is_looked_at_where_it_lies_and_goes_on_from_there(self, stage: Stage) -> None:
        made = stage.call("large", LARGE)
        session = _session(stage)
        assert session.tensors == 1
        before = session.traffic
        assert stage.call("length", pickle.PickleBuffer(made)) == LARGE
        after = session.traffic
        assert (after["copied"], after["passed"] - before["passed"]) == (before["copied"], LARGE)

    @needs("zero_copy_gpu")
    def test_memory_of_devices_can_be_lent_over_its_lane(self, stage: Stage) -> None:
        stage.call("add", 1)
        assert _session(stage).devices.hindrance == ""

    @needs("forkable")
    def test_what_it_would_start_is_offered_to_the_launchs_forker_first(self, stage: Stage) -> None:
        offered: list[tuple[str, bool]] = []

        class Forker:
            def fork(self, launch: Launch) -> None:
                plain = command(launch.interpreter, launch.worker_folder, launch.endpoint.boot_fd)
                offered.append((launch.nonce, launch.argv == plain))

        stage.spy.forker = Forker()
        stage.call("add", 1)
        assert [nonce for nonce, _ in offered] == [stage.spy.launches[0].nonce]
        assert offered[0][1], "it starts another program than a plain worker's, which nothing can be forked for"

    def test_two_environments_are_born_beside_each_other(self, stage: Stage) -> None:
        other = replace(stage.plan, key="contract-other")
        barrier = threading.Barrier(2)

        def call(plan: EnvPlan) -> Any:
            barrier.wait(LIMIT)
            return stage.call("add", 1, 1, plan=plan)

        with ThreadPoolExecutor(2) as both:
            assert list(both.map(call, (stage.plan, other))) == [2, 2]
        assert stage.spy.spawns == 2


def _session(stage: Stage) -> Any:
    worker: Any = next(seat for seat in stage.pool.seats() if seat.key == stage.plan.key).worker
    return worker.session


def _pid(stage: Stage) -> int:
    """Return the process of the worker whose call is held."""
    return int((stage.folder / "began").read_text().split()[0])


def _served(stage: Stage) -> bool:
    try:
        return stage.call("add", 1, 1) == 2
    except errors.Wedged:
        return False
