"""Who may import whom: the table of the architecture, checked from the sources, imports inside functions included."""

from __future__ import annotations

import ast
import sys

import pytest

from .tree import ROOT, Module, cycles, edges, imported, modules

BASE = ("checks", "errors", "settings", "values")

HELPERS = ("backends.local", "backends.provisioning")

ROOMS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "checks": ("errors",),
    "settings": ("errors", "checks"),
    "values": ("errors", "checks"),
    "lifecycle": BASE,
    "ports": BASE,
    "hooks": BASE,
    "packs": BASE,
    "envs": (*BASE, "packs", "process"),
    "process": BASE,
    "transport": (*BASE, "worker.wire"),
    "pool": (*BASE, "lifecycle", "hooks", "ports", "transport", "process", "envs"),
    "backends": (*BASE, "hooks", "process", "transport", "packs", "envs"),
    "backends.inprocess": (*BASE, "hooks", "process", "transport", "packs", "envs", "worker", *HELPERS),
    "comfyui": (*BASE, "pool", "ports", "hooks", "packs", "envs"),
    "isolation": ("comfyui",),
    "runner": (*BASE, "pool", "ports", "hooks", "packs", "envs"),
    "orchestrator": (*BASE, "pool", "ports", "hooks", "process", "lifecycle.idle"),
    "worker": (),
    "worker.wire": (),
}
"""Room -> the rooms it may import besides itself; `cli` and `testing` are told apart below."""

HOMES = {
    "pluggy": ("hooks",),
    "psutil": ("process",),
    "torch": ("transport.tensors", "worker.tensors"),
    "cloudpickle": ("transport.closures", "worker"),
    "numpy": ("transport.arrays", "worker"),
    "PIL": ("transport.arrays", "worker"),
    "packaging": ("packs", "envs", "backends", "cli"),
    "platformdirs": ("envs", "process", "orchestrator.instance"),
    "rich": ("cli",),
    "rattler": ("backends.pixi",),
    "aiohttp": ("orchestrator.server", "orchestrator.render"),
    "pytest": ("testing",),
    "hypothesis": ("testing",),
    "tomli": ("packs", "hooks"),
}
"""Third-party package -> the only places of ours that may import it. Anything else foreign is refused."""

LATE_ELSEWHERE = ("torch", "numpy", "PIL", "cloudpickle")
"""Imported inside functions in these homes: they cost a lot or may be missing."""


def room(name: str) -> str:
    """The room of a module of ours: the longest entry of ROOMS it lies in, else its first part."""
    inner = name.removeprefix("comfy_env.")
    parts = inner.split(".")
    for length in (2, 1):
        candidate = ".".join(parts[:length])
        if candidate in ROOMS:
            return candidate
    return parts[0]


def allowed(importer: str, target: str) -> bool:
    mine, theirs = room(importer), target.removeprefix("comfy_env.")
    if importer == "comfy_env" or target == "comfy_env":
        return importer == "comfy_env" or mine not in ("worker", "worker.wire")
    if mine == room(target):
        return mine != "backends" or not _two_backends(importer, target)
    if mine == "worker":
        return room(target) == "worker.wire"
    if mine == "cli":
        return room(target) != "testing"
    if mine == "testing":
        return room(target) != "comfyui"
    if mine == "backends" and theirs.startswith("worker"):
        return False
    return any(theirs == entry or theirs.startswith(entry + ".") for entry in ROOMS.get(mine, ()))


def _two_backends(importer: str, target: str) -> bool:
    """Tell whether a backend imports another: each is a package; plain modules beside them are helpers for all."""

    def which(name: str) -> str:
        parts = name.split(".")
        return parts[2] if len(parts) > 2 and parts[2] not in helpers else ""

    helpers = {path.stem for path in (ROOT / "comfy_env" / "backends").glob("*.py")}
    return which(target) not in ("", which(importer))


def ours() -> list[tuple[str, str, str]]:
    return [(module.name, target, module.where(node)) for module in modules().values() for target, node in imported(module)
            if target.split(".")[0] == "comfy_env"]


def foreign() -> list[tuple[Module, str, ast.stmt]]:
    return [(module, target.split(".")[0], node) for module in modules().values() for target, node in imported(module)
            if target and target.split(".")[0] not in sys.stdlib_module_names | {"comfy_env", "tomllib"}]


def test_every_import_of_ours_is_in_the_table():
    wrong = [f"{where}: {importer} imports {target}" for importer, target, where in ours() if not allowed(importer, target)]
    assert not wrong, "\n".join(wrong)


def test_there_is_no_import_cycle():
    assert cycles(dict(edges())) == []


def test_a_planted_cycle_is_found():
    assert cycles({"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a"), "d": frozenset("a")}) == [["a", "b", "c"]]


@pytest.mark.parametrize(("importer", "target", "fine"), [
    ("comfy_env.lifecycle.machine", "comfy_env.pool.pool", False),
    ("comfy_env.worker.loop", "comfy_env.values", False),
    ("comfy_env.worker.loop", "comfy_env.worker.wire.frames", True),
    ("comfy_env.worker.wire.frames", "comfy_env.worker.loop", False),
    ("comfy_env.transport.codec", "comfy_env.worker.loop", False),
    ("comfy_env.backends.venv", "comfy_env.backends.pixi", False),
    ("comfy_env.backends.venv", "comfy_env.backends.local", True),
    ("comfy_env.backends.venv", "comfy_env.pool", False),
    ("comfy_env.backends.inprocess.guest", "comfy_env.worker.loop", True),
    ("comfy_env.process.tree", "comfy_env.hooks", False),
    ("comfy_env.cli.app", "comfy_env.pool", True),
    ("comfy_env.cli.app", "comfy_env.testing.fakes", False),
])
def test_the_table_judges_as_the_architecture_says(importer: str, target: str, fine: bool):
    assert allowed(importer, target) is fine


def test_each_third_party_package_is_imported_in_its_home_only():
    wrong = []
    for module, package, node in foreign():
        inner = module.name.removeprefix("comfy_env.")
        homes = HOMES.get(package, ())
        if not any(inner == home or inner.startswith(home + ".") for home in homes):
            wrong.append(f"{module.where(node)}: {package} belongs to {', '.join(homes) or 'nobody'}")
    assert not wrong, "\n".join(wrong)


def test_the_worker_imports_the_standard_library_and_itself_at_its_top_level():
    wrong = [f"{module.where(node)}: {package}" for module, package, node in foreign()
             if module.name.startswith("comfy_env.worker") and node in module.tree.body]
    assert not wrong, "\n".join(wrong)


def test_the_worker_imports_itself_relatively():
    wrong = [module.where(node) for module in modules().values() if module.name.startswith("comfy_env.worker")
             for node in ast.walk(module.tree)
             if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("comfy_env")]
    assert not wrong, "\n".join(wrong)


def test_heavy_packages_are_imported_inside_functions():
    wrong = [f"{module.where(node)}: {package}" for module, package, node in foreign()
             if package in LATE_ELSEWHERE and node in module.tree.body]
    assert not wrong, "\n".join(wrong)
