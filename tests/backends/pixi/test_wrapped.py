"""For backends that need a program between the host and the worker: kills, exit codes and the host's death reach through it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from comfy_env.backends.pixi import PixiBackend
from comfy_env.testing.audit import alive
from comfy_env.testing.stage import GUEST
from comfy_env.values import EnvStatus

from .test_contract import OnACondaEnvironment

pytestmark = pytest.mark.real
WRAPPER = Path(__file__).with_name("between.py")


class Wrapped(PixiBackend):
    """Conda environments whose workers are started through a program that stays, so that none can be forked."""

    capabilities = PixiBackend.capabilities - {"forkable"}

    def launch_for(self, launch):
        ready = super().launch_for(launch)
        return replace(ready, argv=(sys.executable, str(WRAPPER), *ready.argv))


class TestThroughAWrapper(OnACondaEnvironment):
    """The whole contract: kills end wrapper and worker, and the worker's exit status is the one that is told."""

    key = "contract-wrapped"

    @pytest.fixture
    def made(self, tool_settings):
        return Wrapped(tool_settings)

    def test_the_wrapper_stays_in_between(self, stage):
        pid = stage.call("whoami")["pid"]
        wrapper = stage.spy.processes[0].pid
        assert wrapper != pid and parent_of(pid) == wrapper and str(WRAPPER).encode() in Path(f"/proc/{wrapper}/cmdline").read_bytes()
        stage.pool.kill(stage.plan)
        assert not alive(pid) and not alive(wrapper)

    def test_a_worker_stopped_in_native_code_is_killed_through_it(self, stage):
        held = stage.held("hold_native")
        began = time.monotonic()
        stage.pool.kill(stage.plan)
        assert held.exception(30) is not None and time.monotonic() - began < 6


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


HOST = """
import sys, threading
from dataclasses import replace
from pathlib import Path
from comfy_env import WorkerPool
from comfy_env.hooks import Registry
from comfy_env.settings import Settings
from comfy_env.values import Conda, EnvPlan
from tests.backends.pixi.test_wrapped import Wrapped

envs, runtime, channel, guest, hold = sys.argv[1:]
settings = Settings(envs_folder=Path(envs), runtime_folder=Path(runtime), log_folder=Path(runtime) / "logs", pixi="off")
registry = Registry(find=lambda group: ())
registry.register("backend-under-test", Wrapped(settings), owner="the host")
conda = Conda((channel,), ("greeting 1.0.*",))
plan = EnvPlan(key="contract-wrapped", backend="backend-under-test", conda=conda, import_roots=(Path(guest),))
pool = WorkerPool(settings, registry=registry)
worker, child = pool.call(plan, "contract_probe:whoami")["pid"], pool.call(plan, "contract_probe:with_child")
threading.Thread(target=lambda: pool.call(plan, "contract_probe:hold_native", hold), daemon=True).start()
print("living", pool.record(plan).pid, worker, child, flush=True)
sys.stdin.read()
"""


def test_when_the_host_is_killed_wrapper_worker_and_its_child_end_at_once(
    tool_settings, plan, channel, tmp_path, eventually, record_property
):
    wanted = replace(plan("contract-wrapped", "greeting 1.0.*"), backend="backend-under-test")
    if PixiBackend(tool_settings).comfy_env_inspect(wanted, False).status is not EnvStatus.READY:
        PixiBackend(tool_settings).comfy_env_build(wanted, print)
    argv = [sys.executable, "-c", HOST, str(tool_settings.envs_folder), str(tmp_path / "run"), channel.as_uri(), str(GUEST), str(tmp_path)]
    root = str(Path(__file__).parents[3])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, **pipes, cwd=root, env={**os.environ, "PYTHONPATH": root}) as host:
        pids = [int(word) for word in host.stdout.readline().split()[1:]]
        eventually(lambda: (tmp_path / "began").exists(), 20, "the worker computes")
        assert len(pids) == 3 and all(map(alive, pids))
        killed = time.monotonic()
        host.send_signal(signal.SIGKILL)
        eventually(lambda: not any(map(alive, pids)), 5, "everything of it ended")
    took = time.monotonic() - killed
    record_property("milliseconds until all had ended", round(took * 1000, 1))
    assert took < 1.0
