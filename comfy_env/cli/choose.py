"""Which environments a command is about: the packs named on the command line, and those of their environments that were picked."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from comfy_env.cli.exits import NotThere
from comfy_env.packs import pixi_manifest
from comfy_env.packs.plan import EnvPlan, declares_envs, is_pack
from comfy_env.runner.catalog import once


def chosen(options: argparse.Namespace) -> list[EnvPlan]:
    """Return the plans of the packs, narrowed by ``--env``; raises NotThere when nothing is left."""
    plans = plans_of(options.packs)
    if not plans:
        raise NotThere(
            f"no pack that declares an environment in {', '.join(map(str, options.packs))}",
            hint="name a pack's folder (or a folder of packs) whose pyproject.toml has a [tool.comfy-env] table",
        )
    return _narrowed(plans, options.env) if options.env else plans


def plans_of(folders: Iterable[str | Path]) -> list[EnvPlan]:
    """Return what the folders declare, each environment once."""
    return once(plan for folder in folders for plan in plans_in(Path(folder)))  # type: ignore[return-value]


def plans_in(folder: Path) -> list[EnvPlan]:
    """Return what a pack declares, or what the packs right below a folder of packs declare."""
    if not folder.is_dir():
        raise NotThere(f"{folder} is not a folder")
    if is_pack(folder):
        return list(_declared(folder, named=True))
    return [plan for pack in sorted(folder.iterdir()) if pack.is_dir() and is_pack(pack) for plan in _declared(pack)]


def _declared(pack: Path, named: bool = False) -> Iterator[EnvPlan]:
    if declares_envs(pack) or (named and pixi_manifest.find(pack)):  # any other pack is none of our business, and not an error
        yield from EnvPlan.from_pack(pack)


def _narrowed(plans: list[EnvPlan], patterns: list[str]) -> list[EnvPlan]:
    kept = [plan for plan in plans if any(fnmatch(plan.key, pattern) for pattern in patterns)]
    if kept:
        return kept
    keys = [plan.key for plan in plans]
    near = difflib.get_close_matches(patterns[0], keys, 1)
    raise NotThere(f"no environment is named {' or '.join(patterns)}; there are {', '.join(keys)}",
                   hint=f"did you mean {near[0]!r}?" if near else "")


def refusal(error: BaseException) -> str:
    """Return the first line of an error: what fits a table's cell."""
    return str(error).splitlines()[0]
