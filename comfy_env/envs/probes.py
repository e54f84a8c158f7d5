"""Real looks at interpreters and environments: they are run, and only what ran counts."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from comfy_env.envs import tools

LOOK_SECONDS = 10.0
PROBE_SECONDS = 180.0
_SCRIPT = Path(__file__).with_name("probe_script.py")


@dataclass(frozen=True)
class Facts:
    """What an interpreter said of itself. ``trouble`` is '' when it ran."""

    trouble: str = ""
    version: str = ""
    implementation: str = ""
    base: str = ""
    markers: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def look(interpreter: Path) -> Facts:
    """Run an interpreter and return what it is."""
    return _ask(interpreter, {"names": [], "list": False}, LOOK_SECONDS)


def probe(interpreter: Path, requirements: tuple[str, ...]) -> Facts:
    """Run an environment's interpreter, import what the requirements name, and hold versions against them."""
    wanted = [Requirement(line) for line in requirements]
    names = sorted({canonicalize_name(r.name) for r in wanted})
    facts = _ask(interpreter, {"names": names, "list": True}, PROBE_SECONDS)
    if facts.trouble:
        return facts
    found = [complaint for r in wanted for complaint in [_complaint(r, facts)] if complaint]
    return Facts(**{**vars(facts), "trouble": "; ".join(found)})


def _ask(interpreter: Path, asked: dict[str, Any], seconds: float) -> Facts:
    with tempfile.TemporaryDirectory(prefix="comfy-env-probe-") as nowhere:
        answer = tools.ask([interpreter, "-I", "-B", _SCRIPT], seconds, cwd=Path(nowhere), text=json.dumps(asked))
    if answer.trouble:
        return Facts(trouble=answer.trouble)
    try:
        return _facts(json.loads(answer.out))
    except (ValueError, KeyError, TypeError):
        return Facts(trouble=f"it ran but answered {answer.out[:80]!r}: it is no Python of version 3.9 or newer")


def _facts(said: dict[str, Any]) -> Facts:
    markers = said["markers"]
    return Facts(
        version=markers["python_full_version"], implementation=markers["implementation_name"], base=said["base"],
        markers=markers, packages=said["packages"], problems=said["problems"],
    )


def _complaint(wanted: Requirement, facts: Facts) -> str:
    name = canonicalize_name(wanted.name)
    if wanted.marker and not wanted.marker.evaluate(dict(facts.markers)):
        return ""
    if name not in facts.packages:
        return f"{wanted.name} is not installed"
    have = facts.packages[name]
    if not wanted.specifier.contains(have, prereleases=True):
        return f"{wanted.name} {have} does not satisfy {wanted.specifier}"
    return facts.problems.get(name, "")
