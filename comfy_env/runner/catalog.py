"""Which node classes there are, which pack and environment each belongs to, and what each declares."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from comfy_env.errors import ComfyEnvError, PlanError
from comfy_env.packs.plan import EnvPlan
from comfy_env.values import EnvPlan as AnyPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Input:
    """One declared input. `type` is a type's name or a combo's choices."""

    name: str
    type: Any
    options: Mapping[str, Any]
    required: bool


@dataclass(frozen=True)
class PackEnv:
    """A pack in one of its environments, as its worker described it."""

    pack: str
    root: Path
    plan: AnyPlan
    python: str = ""
    libraries: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class NodeClass:
    """A V1 node class as its worker described it."""

    name: str
    home: PackEnv
    inputs: Mapping[str, Input]
    hidden: Mapping[str, Any]
    open: bool
    returns: tuple[Any, ...]
    output_node: bool
    input_is_list: bool
    output_is_list: tuple[bool, ...]
    methods: frozenset[str]
    validates: frozenset[str]
    tied_to_node: bool
    display_name: str

    @classmethod
    def read(cls, name: str, home: PackEnv, info: Mapping[str, Any]) -> NodeClass:
        """Return the class that `comfy_env.worker.nodes:describe` told of."""
        declared = info["input"]
        return cls(
            name=name,
            home=home,
            inputs={n: Input(n, t, o, group == "required") for group in declared for n, (t, o) in declared[group].items()},
            hidden=info["hidden"],
            open=info["open"],
            returns=tuple(info["return_types"]),
            output_node=info["output_node"],
            input_is_list=info["input_is_list"],
            output_is_list=tuple(info["output_is_list"]),
            methods=frozenset(info["methods"]),
            validates=frozenset(info["validates"]),
            tied_to_node=info["not_idempotent"] or "UNIQUE_ID" in info["hidden"].values(),
            display_name=info["display_name"],
        )


@dataclass
class Catalog:
    """Every class that can be run; `failed` says which environments could not be asked, `broken` which classes are unusable."""

    classes: dict[str, NodeClass] = field(default_factory=dict)
    failed: dict[str, ComfyEnvError] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def add(self, home: PackEnv, description: Mapping[str, Any], siblings: Iterable[AnyPlan]) -> None:
        """Take in what a worker described, as far as its plan is the one meant for it."""
        self.broken.update(description["broken"])
        for name, info in description["nodes"].items():
            if not _meant_for(name, home.plan, siblings):
                continue
            if name in self.classes:
                log.warning("node class %s of %s replaces the one of %s", name, home.root, self.classes[name].home.root)
            self.classes[name] = NodeClass.read(name, home, info)


def _meant_for(name: str, plan: AnyPlan, siblings: Iterable[AnyPlan]) -> bool:
    """Say whether class `name` belongs to `plan`: its own patterns first, else the pack's first plan without patterns."""
    if plan.nodes:
        return any(fnmatchcase(name, pattern) for pattern in plan.nodes)
    others = list(siblings)
    if any(fnmatchcase(name, pattern) for other in others for pattern in other.nodes):
        return False
    return next((other.key for other in others if not other.nodes), plan.key) == plan.key


def plans_of(packs: Iterable[str | Path | AnyPlan]) -> list[AnyPlan]:
    """Return the plans of packs given by folder or by plan; a plan needs its `root`, the pack's folder."""
    return once(plan for given in packs for plan in _plans(given))


def once(plans: Iterable[AnyPlan]) -> list[AnyPlan]:
    """Return the plans without those of a folder that was named before, by whatever path."""
    found: dict[tuple[str, Path | None], AnyPlan] = {}
    for plan in plans:
        found.setdefault((plan.key, plan.root and plan.root.resolve()), plan)
    return list(found.values())


def _plans(given: str | Path | AnyPlan) -> Iterator[AnyPlan]:
    if isinstance(given, AnyPlan):
        if given.root is None:
            raise PlanError(f"plan {given.key} has no root: the runner needs the pack's folder")
        yield given
        return
    yield from EnvPlan.from_pack(Path(given))


def load(pool: Any, plans: Iterable[AnyPlan]) -> Catalog:
    """Ask every environment, all at once, what its pack offers."""
    plans = list(plans)
    catalog = Catalog()
    if not plans:
        return catalog
    with ThreadPoolExecutor(max_workers=len(plans), thread_name_prefix="comfy-env-describe") as threads:
        answers = list(threads.map(lambda plan: _describe(pool, plan), plans))
    for plan, answer in zip(plans, answers, strict=True):
        if isinstance(answer, ComfyEnvError):
            catalog.failed[plan.key] = answer
        else:
            catalog.add(_home(plan, answer), answer, [other for other in plans if other.root == plan.root])
    return catalog


def _describe(pool: Any, plan: AnyPlan) -> Any:
    try:
        return pool.call(plan, "comfy_env.worker.nodes:describe", str(plan.root), [name_of(d) for d in plan.dependencies])
    except ComfyEnvError as error:
        log.info("environment %s cannot be used: %s", plan.key, error.message)   # the one who needs it is told
        return error


def _home(plan: AnyPlan, description: Mapping[str, Any]) -> PackEnv:
    assert plan.root is not None
    libraries = tuple((name, version) for name, version in description["versions"].items() if version)
    return PackEnv(plan.root.name, plan.root, plan, description["python"], libraries)


def name_of(requirement: str) -> str:
    """Return the distribution a requirement line asks for."""
    found = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return found.group(1) if found else requirement
