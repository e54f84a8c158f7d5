"""The in-process backend: the contract it keeps, and honest words for what a thread cannot."""

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from comfy_env import errors
from comfy_env.backends.inprocess import InProcessBackend, backend
from comfy_env.backends.inprocess.roots import Roots
from comfy_env.hooks import Registry
from comfy_env.pool import WorkerPool
from comfy_env.testing.conformance import BackendContract
from comfy_env.testing.stage import GUEST, LIMIT, PROBE
from comfy_env.values import CallOptions, EnvPlan

PLAN = EnvPlan(key="here", backend="in-process", import_roots=(GUEST,))


class TestInProcess(BackendContract):
    @pytest.fixture
    def backend(self):
        return InProcessBackend()

    @pytest.fixture
    def plan(self):
        return EnvPlan(key="contract")


@pytest.fixture
def pool():
    sys.modules.pop(PROBE, None)
    with WorkerPool(registry=Registry(find=lambda group: ())) as pool:
        yield pool


def call(pool, function, *args, **options):
    return pool.call(PLAN, f"{PROBE}:{function}", *args, options=CallOptions(**options))


def test_it_comes_in_through_the_same_table_as_every_backend():
    assert Registry(find=lambda group: ()).backend("in-process").backend is backend


def test_it_claims_nothing_that_a_thread_cannot_keep():
    assert backend.capabilities == frozenset()


def test_its_worker_is_a_thread_of_this_process(pool):
    told = call(pool, "whoami")
    assert told["pid"] == os.getpid()
    assert told["thread"] != threading.get_ident()
    worker, generation = pool.record(PLAN)
    assert (worker.pid, generation) == (None, 1)


def test_arguments_and_results_are_copied_as_for_any_worker(pool):
    given = [1, [2]]
    assert call(pool, "add", given, [3]) == [1, [2], 3]
    assert given == [1, [2]]


def test_a_function_that_ends_the_interpreter_only_ends_its_call(pool):
    with pytest.raises(errors.NodeRaised, match="SystemExit|7"):
        pool.call(PLAN, "sys:exit", 7)
    assert call(pool, "add", 1, 1) == 2


def test_a_progress_report_reaches_the_asking_thread(pool):
    heard = []
    options = CallOptions(on_progress=lambda progress: heard.append((progress, threading.get_ident())))
    pool.call(PLAN, "comfy_env.worker.callback:report_progress", 1, 4, options=options)
    assert [(p.value, p.total, thread) for p, thread in heard] == [(1, 4, threading.get_ident())]


def holding(pool, function, folder, eventually):
    """Return the thread of a call that holds on, once it has begun, and a list for the error that it fails by."""
    failed = []

    def hold():
        try:
            call(pool, function, str(folder))
        except errors.ComfyEnvError as error:
            failed.append(error)

    holder = threading.Thread(target=hold)
    holder.start()
    eventually((folder / "began").exists)
    return holder, failed


def test_a_kill_ends_python_code_that_can_be_interrupted(pool, tmp_path, eventually):
    holder, failed = holding(pool, "hold", tmp_path, eventually)
    pool.kill(PLAN)
    holder.join(LIMIT)
    assert len(failed) == 1 and not holder.is_alive()
    assert call(pool, "add", 1, 1) == 2
    assert pool.record(PLAN).generation == 2


def test_what_will_not_end_is_named_with_its_generation_and_what_to_do(pool, tmp_path, eventually):
    holder, _ = holding(pool, "hold_native", tmp_path, eventually)
    pool.kill(PLAN)
    with pytest.raises(errors.Wedged) as caught:
        call(pool, "add", 1)
    assert "generation 1" in str(caught.value) and "restart ComfyUI" in str(caught.value)
    (tmp_path / "go").touch()
    holder.join(LIMIT)
    eventually(lambda: pool.record(PLAN) is None, what="the abandoned thread has ended")
    assert call(pool, "add", 1, 1) == 2


def test_its_threads_end_with_the_pool(eventually):
    before = set(threading.enumerate())
    with WorkerPool(registry=Registry(find=lambda group: ())) as pool:
        call(pool, "add", 1)
        assert [t.name for t in set(threading.enumerate()) - before if t.name == "comfy_env here #1"]
    eventually(lambda: set(threading.enumerate()) <= before)


def test_a_pack_whose_environment_is_not_built_may_fall_back_to_it(pool, tmp_path):
    plan = EnvPlan(key="fallen", backend="venv", root=tmp_path, fallback="in-process", import_roots=(GUEST,))
    assert pool.call(plan, f"{PROBE}:whoami")["pid"] == os.getpid()


# ---- import roots

def test_roots_come_last_so_that_nothing_of_the_host_is_shadowed(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit\n")
    with Roots().borrow([str(tmp_path)]):
        assert sys.path[-1] == str(tmp_path)
        assert json.__file__ != str(tmp_path / "json.py")
    assert str(tmp_path) not in sys.path


def test_a_root_leaves_with_its_last_borrower(tmp_path):
    roots, folder = Roots(), str(tmp_path)
    first, second = roots.borrow([folder]), roots.borrow([folder])
    first.__enter__()
    second.__enter__()
    assert sys.path.count(folder) == 1
    first.__exit__(None, None, None)
    assert folder in sys.path
    second.__exit__(None, None, None)
    assert folder not in sys.path


def test_a_root_that_was_there_before_stays(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.path)
    for _ in range(2):
        with Roots().borrow([str(tmp_path)]):
            assert sys.path == before
    assert sys.path == before


# ---- the thread alone

def test_the_exit_handle_is_readable_when_the_thread_has_ended_and_not_before(pool):
    call(pool, "add", 1)
    process = pool.seats()[0].worker.process
    assert process.exit_status() is None
    handle = os.dup(process.exit_handle())  # the pool closes its own as soon as it has seen the end
    try:
        began = time.monotonic()
        assert process.stop(LIMIT) is not None
        assert os.read(handle, 1) == b""
        assert time.monotonic() - began < 5
    finally:
        os.close(handle)


def test_a_module_that_another_caller_is_still_importing_is_waited_for(pool, tmp_path):
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.5)\n\ndef answer():\n    return 42\n")
    plans = [EnvPlan(key=key, backend="in-process", import_roots=(str(tmp_path),)) for key in ("one", "two")]
    try:
        with ThreadPoolExecutor(2) as both:
            assert list(both.map(lambda plan: pool.call(plan, "slow_to_import:answer"), plans)) == [42, 42]
    finally:
        sys.modules.pop("slow_to_import", None)


def test_a_module_whose_name_another_environment_took_is_refused_by_name(pool, tmp_path):
    plans = []
    for key in ("one", "two"):
        (tmp_path / key).mkdir()
        (tmp_path / key / "same_name.py").write_text(f"def who():\n    return {key!r}\n")
        plans.append(EnvPlan(key=key, backend="in-process", import_roots=(str(tmp_path / key),)))
    try:
        assert pool.call(plans[0], "same_name:who") == "one"
        with pytest.raises(errors.NodeRaised, match="'same_name' of this environment .* already runs another one .*backend venv"):
            pool.call(plans[1], "same_name:who")
        assert pool.call(plans[0], "same_name:who") == "one"
    finally:
        sys.modules.pop("same_name", None)
