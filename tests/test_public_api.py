"""The public names and their signatures: whoever changes one changes this file too, on purpose."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys

import pytest

import comfy_env
import comfy_env.errors

ERRORS = {
    "BackendError": "ComfyEnvError", "BirthSilent": "SpawnFailed", "BuildCancelled": "BuildFailed", "BuildFailed": "ComfyEnvError",
    "CallFailed": "ComfyEnvError", "CallSilent": "CallFailed", "CallWithdrawn": "CallFailed", "ComfyEnvError": "Exception",
    "DecodeRefused": "ComfyEnvError", "DiedBeforeJoining": "SpawnFailed", "EncodeRefused": "ComfyEnvError", "EnvMoved": "SpawnFailed",
    "EnvNotBuilt": "SpawnFailed", "FrameDamaged": "ComfyEnvError", "HookStopped": "CallFailed", "Interrupted": "CallFailed",
    "InterpreterMissing": "SpawnFailed", "LaneBusy": "ComfyEnvError", "LaneLost": "ComfyEnvError", "NodeRaised": "CallFailed",
    "PackageDamaged": "BuildFailed", "Parked": "SpawnFailed", "PlanError": "ComfyEnvError", "PlatformMissing": "BuildFailed",
    "PoolClosed": "ComfyEnvError", "ReferenceLost": "CallFailed", "SpawnFailed": "ComfyEnvError", "ToolTooOld": "BuildFailed",
    "TransportRefused": "SpawnFailed", "Unsatisfiable": "BuildFailed", "Wedged": "SpawnFailed", "WorkerCrashed": "CallFailed",
}
OTHERS = {
    "CallOptions", "EnvPlan", "NodeContext", "Progress", "RemoteRef", "Settings", "WorkerPool", "hookimpl", "__contract__", "__version__",
    "copy_files", "install", "register_nodes", "register_serializer", "setup_env",
}

POOL = {
    "__init__": "settings=None *registry=None *clock=None *shelf=None *prompt=None *memory=None *observers=()",
    "ask_aside": "plan question facts=None",
    "build": "plan progress=None",
    "call": "plan target **args *options=None **kwargs",
    "call_async": "plan target **args *options=None **kwargs",
    "close": "",
    "inspect": "plan probe=True",
    "interrupt": "plan",
    "kill": "plan reason='asked'",
    "plan": "plan",
    "record": "plan",
    "records": "",
    "release": "plan want=None",
    "remark": "plan line",
    "remove": "plan",
    "seats": "",
    "sources_changed": "plan",
    "stand_ins": "plan generation count",
    "story": "plan",
    "tick": "",
}
PLAN_FIELDS = (
    "key", "backend", "root", "python", "dependencies", "interpreter", "import_roots", "nodes", "torch", "indexes", "conda", "variables",
    "secrets", "device", "limits", "allow_source_builds", "api", "comfy", "fallback", "pack", "source",
)


def written(function: object) -> str:
    """A signature in one line: `*name` is keyword-only, `**args`/`**kwargs` collect; annotations are left out."""
    words = []
    for name, one in list(inspect.signature(function).parameters.items())[1:]:
        star = {one.KEYWORD_ONLY: "*", one.VAR_POSITIONAL: "**", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        words.append(f"{star}{name}" + ("" if one.default is one.empty else f"={one.default!r}"))
    return " ".join(words)


def test_the_public_names_are_these():
    assert set(comfy_env.__all__) == set(ERRORS) | OTHERS


@pytest.mark.parametrize("name", sorted(comfy_env.__all__))
def test_a_public_name_resolves(name: str):
    assert getattr(comfy_env, name) is not None


def test_every_error_a_caller_may_want_to_catch_is_a_public_name():
    tree = {name for name, kind in vars(comfy_env.errors).items() if isinstance(kind, type) and issubclass(kind, comfy_env.ComfyEnvError)}
    assert tree == set(ERRORS)


def test_a_name_that_is_not_public_is_refused_with_the_list():
    with pytest.raises(AttributeError, match="WorkerPool"):
        comfy_env.WorkerPol  # noqa: B018 - the look-up is the test


@pytest.mark.parametrize(("name", "base"), ERRORS.items())
def test_an_error_has_its_place_in_the_tree(name: str, base: str):
    assert getattr(comfy_env, name).__mro__[1].__name__ == base


@pytest.mark.parametrize(("name", "signature"), POOL.items())
def test_a_method_of_the_pool_has_this_signature(name: str, signature: str):
    assert written(getattr(comfy_env.WorkerPool, name)) == signature


def test_the_pool_has_no_other_public_methods():
    found = {name for name in dir(comfy_env.WorkerPool) if not name.startswith("_")}
    assert found == set(POOL) - {"__init__"}


def test_a_plan_has_these_fields():
    assert tuple(spec.name for spec in dataclasses.fields(comfy_env.EnvPlan)) == PLAN_FIELDS


def test_plans_come_from_packs_and_from_existing_interpreters():
    assert written(comfy_env.EnvPlan.from_pack.__func__).split()[0] == "folder"
    assert written(comfy_env.EnvPlan.existing.__func__) == "python key *root=None **more"


def test_call_options_have_these_fields():
    assert tuple(spec.name for spec in dataclasses.fields(comfy_env.CallOptions)) == ("silence", "wait", "on_progress", "node", "callbacks")


def test_importing_the_package_starts_nothing_and_loads_nothing_heavy():
    program = (
        "import sys, os, json, threading\n"
        "before = set(sys.modules)\n"
        "fds = len(os.listdir('/proc/self/fd')) if os.path.isdir('/proc/self/fd') else 0\n"
        "import comfy_env\n"
        "now = len(os.listdir('/proc/self/fd')) if fds else 0\n"
        "print(json.dumps([threading.active_count(), now - fds, sorted(m for m in set(sys.modules) - before)]))\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    threads, descriptors, loaded = json.loads(answer.stdout)
    assert threads == 1
    assert descriptors == 0
    assert not [name for name in loaded if name.split(".")[0] in ("torch", "numpy", "pluggy", "psutil", "cloudpickle", "packaging", "PIL")]
    assert [name for name in loaded if name.startswith("comfy_env")] == ["comfy_env"]
