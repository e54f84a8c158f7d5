"""A pack's own pixi manifest, `pixi.toml` or the `[tool.pixi]` of its `pyproject.toml`: where its tables stand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfy_env.errors import PlanError
from comfy_env.packs import document as documents
from comfy_env.packs import identity
from comfy_env.packs.document import Document
from comfy_env.packs.wrong import did_you_mean
from comfy_env.values import EnvPlan

FILE = "pixi.toml"
LOCK = "pixi.lock"
DEFAULT = "default"
Keys = tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """The parsed file. ``base`` leads to pixi's tables in it."""

    document: Document
    base: Keys = ()

    @property
    def file(self) -> Path:
        return self.document.file

    @property
    def lock(self) -> Path | None:
        """The lock beside it, None where there is none."""
        lock = self.file.parent / LOCK
        return lock if lock.is_file() else None

    def get(self, keys: Keys) -> Any:
        """Return what stands under the keys, None where nothing does."""
        value: Any = self.document.data
        for key in (*self.base, *keys):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def table(self, keys: Keys) -> dict[str, Any]:
        """Return the table under the keys, {} where there is none; raises PlanError where something else stands there."""
        return self.document.table(*self.base, *keys)

    def problem(self, keys: Keys, what: str, hint: str = "") -> PlanError:
        """Return the error that says what is wrong at the keys."""
        return self.document.problem((*self.base, *keys), what, hint)

    @property
    def workspace(self) -> Keys:
        """The keys of the workspace's table; older manifests call it project."""
        return ("workspace",) if self.get(("workspace",)) is not None else ("project",)

    def environments(self) -> tuple[str, ...]:
        """Return the names of its environments, the default one first."""
        return tuple(dict.fromkeys([DEFAULT, *self.table(("environments",))]))


def find(folder: Path | None) -> Manifest | None:
    """Return the manifest of a folder, None where it has none; raises PlanError where it cannot be read."""
    if folder is None:
        return None
    own = folder / FILE
    if own.is_file():
        return Manifest(documents.parse(own, own.read_bytes()))
    if not (folder / documents.FILE).is_file():
        return None
    document = documents.read(folder)
    return Manifest(document, ("tool", "pixi")) if "pixi" in document.table("tool") else None


def of_plan(plan: EnvPlan) -> Manifest | None:
    """Return the manifest that says what the plan's environment is, None where the plan itself does.

    Raises PlanError where both do: what a plan adds to a manifest would be lost.
    """
    if plan.interpreter is not None or plan.conda is not None:
        return None
    manifest = find(plan.root)
    if manifest is None:
        return None
    said = {"python": plan.python, "dependencies": plan.dependencies, "indexes": plan.indexes, "torch": plan.torch == "host"}
    both = [name for name, value in said.items() if value]
    if both:
        raise PlanError(
            f"{plan.source + ': ' if plan.source else ''}{', '.join(both)} stand beside {manifest.file}, which declares the environment",
            env=plan.key, hint="move them into the manifest, or write conda = {} to let the table alone declare the environment",
        )
    return manifest


def environment_of(plan: EnvPlan, manifest: Manifest) -> str:
    """Return which environment of the manifest the plan is: the one it is named after, else the default one."""
    if plan.pack is None:
        return DEFAULT
    named = [name for name in manifest.environments() if identity.key(plan.pack, name) == plan.key]
    return named[0] if named else DEFAULT


def features(manifest: Manifest, environment: str) -> tuple[Keys, ...]:
    """Return where the parts of an environment stand, what counts most first: its own, its features', the default one."""
    at = ("environments", environment)
    own = manifest.get(at)
    listed = own.get("features", []) if isinstance(own, dict) else own or []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise manifest.problem(at, "features must be a list of names")
    inline: list[Keys] = [at] if isinstance(own, dict) else []
    default: list[Keys] = [] if isinstance(own, dict) and own.get("no-default-feature") is True else [()]
    return (*inline, *(_feature(manifest, at, name) for name in listed if name != DEFAULT), *default)


def _feature(manifest: Manifest, at: Keys, name: str) -> Keys:
    if manifest.get(("feature", name)) is None:
        known = manifest.table(("feature",))
        hint = did_you_mean(name, known) if known else "write [feature.NAME.dependencies]"
        raise manifest.problem(at, f"there is no feature {name!r}", hint)
    return ("feature", name)
