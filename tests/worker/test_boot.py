"""A worker's first moments: what it can be taken for, what it keeps private, and that it never outlives its host."""

from __future__ import annotations

import ast
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.transport.workers import WORKER_FOLDER, interpreter, joined, started, until

ROOT = Path(__file__).parents[2]


def _python(code: str, **more):
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True, **more)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


# ---------------------------------------------------------------- names

def test_the_folder_is_importable_as_comfy_env_worker_and_as_nothing_else():
    with joined() as worker:
        facts = worker.value("wire_pack:where")
    assert str(WORKER_FOLDER) not in facts["path"]
    assert facts["path"][0] == worker.launch.import_roots[0]
    assert "comfy_env.worker.loop" in facts["modules"]
    assert not {"loop", "calls", "wire", "boot", "tensors"} & set(facts["modules"])


def test_another_comfy_env_in_the_environment_is_never_taken_for_ours(tmp_path):
    (tmp_path / "comfy_env").mkdir()
    (tmp_path / "comfy_env" / "__init__.py").write_text("raise AssertionError('the wrong one')")
    (tmp_path / "pack.py").write_text("import comfy_env.worker.callback\n\ndef f():\n    return comfy_env.worker.callback.__file__\n")
    with joined(import_roots=(str(tmp_path),)) as worker:
        assert worker.value("pack:f") == str(WORKER_FOLDER / "callback.py")


def test_a_program_that_is_not_started_by_a_host_says_so():
    done = subprocess.run([sys.executable, "-I", str(WORKER_FOLDER)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 64
    assert "started by a host" in done.stderr


@pytest.mark.parametrize("path", sorted(WORKER_FOLDER.rglob("*.py")), ids=lambda p: p.relative_to(WORKER_FOLDER).as_posix())
def test_each_module_has_the_grammar_of_python_3_9_and_imports_ours_only_relatively(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level]
    assert not [n for n in names if n.partition(".")[0] == "comfy_env"]


def test_every_module_imports_on_the_oldest_python(tmp_path):
    python = interpreter("3.9")
    if python is None:
        pytest.skip("no Python 3.9 answers here")
    code = f"""
import runpy, importlib, pkgutil
main = runpy.run_path({str(WORKER_FOLDER / '__main__.py')!r}, run_name="imported")
main["adopt_folder"]({str(WORKER_FOLDER)!r})
import comfy_env.worker
for module in pkgutil.walk_packages(comfy_env.worker.__path__, "comfy_env.worker."):
    if not module.name.endswith("__main__") and ".comfy" not in module.name:
        importlib.import_module(module.name)
"""
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- descriptors

def test_no_descriptor_of_the_wire_is_inheritable_in_the_worker():
    with joined() as worker:
        open_ones, inheritable = worker.value("wire_pack:open_descriptors")
    assert len(open_ones) >= 6
    assert inheritable == [0, 1, 2]


def test_a_forked_child_of_the_worker_has_no_lane():
    with joined() as worker:
        assert worker.value("wire_pack:sockets_of_a_child") == (2, 0, 0)


def test_the_record_is_locked_for_life(tmp_path):
    record = tmp_path / "record"
    record.write_text("{}")

    def is_locked() -> bool:
        with open(record, "r+b") as stream:
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    with joined(document={"record_lock": str(record)}) as worker:
        worker.value("wire_pack:echo", 1)
        assert is_locked()
    assert not is_locked()


def test_a_worker_shows_its_stack_even_while_native_code_holds_the_gil():
    code = """
    import signal, sys, threading, time
    from tests.transport.workers import joined, until
    with joined() as worker:
        thread = threading.Thread(target=worker.value, args=("wire_pack:hold_the_gil", 2.0))
        thread.start()
        until(lambda: worker.session._running is not None)
        time.sleep(0.2)
        worker.process.popen.send_signal(signal.SIGUSR1)
        thread.join(20)
        until(lambda: b"in hold_the_gil" in worker.output())
    """
    with _python(code, stderr=subprocess.STDOUT) as program:
        out, _ = program.communicate(timeout=60)
        assert program.returncode == 0, out


# ---------------------------------------------------------------- the host's death

HOST = """
import sys, threading, time
from tests.transport.workers import joined
with joined() as worker:
    grandchild = worker.value("wire_pack:grandchild")
    threading.Thread(target=worker.call, args=("wire_pack:{what}", 60), daemon=True).start()
    time.sleep(0.3)
    print(worker.process.pid, grandchild, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("what", ["sleep", "hold_the_gil"])
def test_a_worker_and_its_children_end_with_a_killed_host_whatever_it_does(what):
    with _python(HOST.format(what=what)) as host:
        pids = [int(p) for p in host.stdout.readline().split()]
        assert not any(map(_is_gone, pids))
        host.kill()
        killed = time.monotonic()
        until(lambda: all(map(_is_gone, pids)), 10)
        assert time.monotonic() - killed < 1


def test_a_worker_whose_host_is_gone_before_it_looks_ends_at_once():
    with started(argv=[sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        read, write = os.pipe()
        os.close(write)
        boot, boot_write = os.pipe()
        os.write(boot_write, b'{"main_fd": null, "side_fd": null, "lifeline_fd": %d}' % read)
        os.close(boot_write)
        command = [sys.executable, "-I", "-u", str(WORKER_FOLDER), "--boot", str(boot)]
        program = subprocess.Popen(command, pass_fds=(boot, read), start_new_session=True)
        os.close(boot)
        os.close(read)
        assert program.wait(20) == -signal.SIGKILL
        assert other.process.exit_status() is None


def test_a_lifeline_is_not_armed_for_a_group_that_is_somebody_elses():
    code = """
    import os
    from comfy_env.worker import orphaned
    read, write = os.pipe()
    if os.fork() == 0:
        os.setpgid(0, 0)
        os._exit(10 + orphaned.arm(read))
    print(os.waitstatus_to_exitcode(os.wait()[1]), orphaned.arm(read), orphaned.arm(read), orphaned.host_is_gone(read))
    """
    with _python(code) as program:
        out, _ = program.communicate(timeout=30)
    assert out.split() == ["10", "True", "True", "False"]
