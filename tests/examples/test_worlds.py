"""The demo gives the packs two Pythons that really ran here, whatever the machine has."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from comfy_env import EnvPlan
from comfy_env.envs import interpreters as finding
from comfy_env.envs import stamps


def _asked(plan, python):
    """Return what a plan asks for on a Python."""
    lines = [Requirement(line) for line in plan.dependencies]
    return {f"{line.name}{line.specifier}" for line in lines if line.marker is None or line.marker.evaluate({"python_version": python})}


@pytest.mark.parametrize(("found", "chosen"), [
    ((9, 10, 11, 12, 13), (9, 13)), ((11,), (11, 11)), ((11, 14), (11, 14)), ((12, 13), (12, 13)), ((9, 10), (9, 10)),
    ((13,), (None, 13)), ((13, 14), (None, 14)), ((), (None, None)),
])
def test_two_pythons_are_taken_where_two_are_found(part, found, chosen):
    assert part("worlds").choose(found) == chosen


def test_the_packs_ask_for_conflicting_numpys_where_an_old_python_answers(part):
    chosen = part("worlds").worlds((10, 13))
    assert (chosen.classic.python, chosen.modern.python) == ("3.10", "3.13")
    assert _asked(chosen.classic, "3.10") == {"numpy==1.26.*", "pillow==11.*"} and "numpy>=2.2" in _asked(chosen.modern, "3.13")


def test_the_packs_disagree_on_pillow_where_no_old_python_answers(part):
    chosen = part("worlds").worlds((13,))
    assert (chosen.classic.python, chosen.modern.python) == ("3.13", "3.13")
    assert _asked(chosen.classic, "3.13") == {"numpy>=2.1", "pillow==11.*"} and "pillow>=12" in _asked(chosen.modern, "3.13")


@pytest.mark.parametrize("found", [(9, 13), (11,), (13,), ()])
def test_what_the_demo_builds_is_what_the_packs_declare_so_that_status_calls_it_ready(part, found):
    chosen = part("worlds").worlds(found)
    for plan in chosen.plans:
        (declared,) = EnvPlan.from_pack(plan.root)
        assert stamps.plan_hash(plan) == stamps.plan_hash(declared)
        assert finding.wanted(plan) == finding.wanted(declared) or finding.wanted(declared).contains(f"{plan.python}.1")


def test_only_interpreters_that_ran_are_counted(part, interpreters):
    assert [f"3.{minor}" for minor in part("worlds").answering() if minor < 14] == list(interpreters)
