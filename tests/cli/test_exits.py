"""Each kind of failure has its exit code, and the command never shows a traceback unasked."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from comfy_env import errors
from comfy_env.cli.app import main
from comfy_env.cli.exits import Exit, NotThere, exit_code
from comfy_env.cli.parser import build_parser
from comfy_env.runner.problems import NodeFailed, NotAWorkflow

EXPECTED = {
    "PlanError": Exit.DECLARATION, "BuildFailed": Exit.BUILD, "BuildCancelled": Exit.INTERRUPTED, "CallFailed": Exit.CALL,
    "NodeRaised": Exit.CALL, "WorkerCrashed": Exit.CALL, "CallSilent": Exit.CALL, "Interrupted": Exit.INTERRUPTED,
    "ReferenceLost": Exit.CALL, "CallWithdrawn": Exit.CALL, "EncodeRefused": Exit.CALL, "SpawnFailed": Exit.WORKER,
    "InterpreterMissing": Exit.WORKER, "DiedBeforeJoining": Exit.WORKER, "BirthSilent": Exit.WORKER, "TransportRefused": Exit.WORKER,
    "EnvNotBuilt": Exit.WORKER, "EnvMoved": Exit.WORKER, "Parked": Exit.WORKER, "Wedged": Exit.WORKER, "BackendError": Exit.BACKEND,
    "ComfyEnvError": Exit.FAILED, "PoolClosed": Exit.FAILED, "LaneBusy": Exit.FAILED, "LaneLost": Exit.FAILED,
    "FrameDamaged": Exit.FAILED, "DecodeRefused": Exit.FAILED,
}
TREE = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, errors.ComfyEnvError)}


def test_every_error_that_is_expected_here_is_in_the_tree():
    assert set(EXPECTED) <= set(TREE)


@pytest.mark.parametrize("name", sorted(TREE))
def test_an_error_gives_its_code_or_that_of_the_nearest_one_it_is_a_kind_of(name: str):
    nearest = next(kind.__name__ for kind in TREE[name].__mro__ if kind.__name__ in EXPECTED)
    assert exit_code(TREE[name]("x")) is EXPECTED[nearest]


@pytest.mark.parametrize(("error", "code"), [
    (NotThere("x"), Exit.NOTHING), (NotAWorkflow("x"), Exit.WORKFLOW), (NodeFailed("x"), Exit.CALL),
    (KeyboardInterrupt(), Exit.INTERRUPTED), (ZeroDivisionError(), Exit.FAILED),
])
def test_other_failures_give_their_code(error: BaseException, code: Exit):
    assert exit_code(error) is code


def test_the_codes_are_different_and_all_explained():
    assert len({int(code) for code in Exit}) == len(Exit)
    assert all(code.meaning for code in Exit)


def test_the_help_names_every_command_and_code():
    text = build_parser().format_help()
    for word in ("status", "plan", "build", "remove", "run", "ps", "story", "sweep", "backends", "doctor", "130"):
        assert word in text


def test_a_wrong_command_line_ends_with_two(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["no-such-command"])
    assert ended.value.code == Exit.USAGE
    assert "no-such-command" in capsys.readouterr().err


def test_the_command_runs_as_a_module():
    answer = subprocess.run([sys.executable, "-m", "comfy_env.cli", "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stdout.split()[0]) == (0, "comfy-env")


def test_a_reader_that_leaves_is_no_error():
    program = "import sys; from comfy_env.cli import main; sys.exit(main(['backends', '--json']))"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.close()
    _, err = child.communicate(timeout=60)
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
