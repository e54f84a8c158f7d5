"""The pixi manifest of a plan."""

from __future__ import annotations

import json
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from comfy_env.backends.pixi import conda_specs
from comfy_env.backends.pixi.making import asked_python
from comfy_env.envs.cuda_wheels import Settled
from comfy_env.envs.host_torch import Wish
from comfy_env.envs.sources import Sources
from comfy_env.errors import PlanError
from comfy_env.packs.pixi_manifest import FILE as FILE
from comfy_env.packs.pixi_platforms import here
from comfy_env.packs.redact import has_secret
from comfy_env.values import EnvPlan


def text(plan: EnvPlan, settled: Settled, wish: Wish, came_from: Sources) -> str:
    """Return the manifest; raises PlanError for what pixi cannot say."""
    channels = plan.conda.channels if plan.conda and plan.conda.channels else ("conda-forge",)
    python = asked_python(plan)
    conda = [_conda(plan, line) for line in (plan.conda.dependencies if plan.conda else ())]
    pypi = _pypi(plan, (*settled.lines, *wish.requirements))
    return "\n".join([
        "[workspace]", f"name = {_quote(plan.key)}", f"channels = {_list(channels)}", f"platforms = {_list((here(),))}",
        "", "[dependencies]", *([f"python = {_quote(python)}"] if python else []), *conda,
        "", "[pypi-options]", *_options(plan, came_from, (*settled.indexes, *wish.indexes)),
        "", "[pypi-dependencies]", *pypi, "",
    ])


def _conda(plan: EnvPlan, line: str) -> str:
    parts = conda_specs.parts(plan, line)
    version = _quote(parts["version"] or "*")
    more = "".join(f", {key} = {_quote(parts[key])}" for key in ("build", "channel") if parts[key])
    return f"{_quote(parts['name'])} = " + (f"{{ version = {version}{more} }}" if more else version)


def _pypi(plan: EnvPlan, lines: tuple[str, ...]) -> list[str]:
    """Return the Python requirements, one entry per package: the table's keys are names."""
    found: dict[str, list[Requirement]] = {}
    for line in lines:
        wanted = Requirement(line)
        if wanted.marker:
            raise PlanError(f"pixi takes no marker: {line!r}", env=plan.key, hint="put the requirement under platform.<tag>")
        found.setdefault(canonicalize_name(wanted.name), []).append(wanted)
    return [_entry(together) for together in found.values()]


def _entry(together: list[Requirement]) -> str:
    urls = [wanted.url for wanted in together if wanted.url]
    bounds = ",".join(dict.fromkeys(str(wanted.specifier) for wanted in together if wanted.specifier))
    extras = tuple(sorted({extra for wanted in together for extra in wanted.extras}))
    parts = [f"url = {_quote(urls[0])}" if urls else f"version = {_quote(bounds or '*')}"]
    parts += [f"extras = {_list(extras)}"] if extras else []
    return f"{_quote(together[0].name)} = {{ {', '.join(parts)} }}"


def _options(plan: EnvPlan, came_from: Sources, more: tuple[str, ...]) -> list[str]:
    """Return where packages come from. The manifest lies on disk, so an index with credentials is not written into it."""
    main = came_from.pip.get("index-url", "")
    extra = tuple(url for url in (*more, *came_from.indexes, *came_from.pip.get("extra-index-url", "").split()) if not has_secret(url))
    folders = ", ".join(f"{{ path = {_quote(str(Path(folder)))} }}" for folder in came_from.folders)
    lines = [
        "" if plan.allow_source_builds else "no-build = true",
        f"index-url = {_quote(main)}" if main and not has_secret(main) else "",
        f"extra-index-urls = {_list(extra)}" if extra else "",
        f"find-links = [{folders}]" if folders else "",
    ]
    return [line for line in lines if line]


def _quote(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _list(values: tuple[str, ...]) -> str:
    return f"[{', '.join(_quote(value) for value in values)}]"
