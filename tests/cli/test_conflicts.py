"""On what two environments cannot agree is found from their declarations, and nothing else is called a conflict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from comfy_env.cli.conflicts import can_agree, conflicts
from comfy_env.values import EnvPlan


def plan(key: str, *dependencies: str, python: str | None = None) -> EnvPlan:
    return EnvPlan(key=key, python=python, dependencies=dependencies)


@pytest.mark.parametrize(("one", "other", "agree"), [
    ("<2", ">=2", False),
    ("<2", ">=1.26", True),
    ("==1.26.*", ">=1.26.4", True),
    ("==1.26.*", "<1.26", False),
    ("==1.26.4", "==2.1", False),
    ("==1.26.4", "==1.26.4", True),
    (">1.0,<1.1", "!=1.0.5", True),
    ("~=1.4", ">=2", False),
    ("~=1.4", ">=1.9", True),
    ("", ">=3", True),
    ("", "", True),
    (">=11,<12", ">=12", False),
    ("!=1.0", "==1.0", False),
    ("<1", ">0", True),
])
def test_two_ranges_agree_if_some_version_is_in_both(one: str, other: str, agree: bool):
    assert can_agree(SpecifierSet(one), SpecifierSet(other)) is agree
    assert can_agree(SpecifierSet(other), SpecifierSet(one)) is agree


VERSIONS = st.builds(lambda a, b: f"{a}.{b}", st.integers(0, 4), st.integers(0, 4))
CLAUSES = st.builds(lambda op, v: f"{op}{v}", st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), VERSIONS)
RANGES = st.lists(CLAUSES, min_size=0, max_size=3).map(",".join)
GRID = [Version(f"{a}.{b}.{c}") for a in range(6) for b in range(6) for c in (0, 1, 5)]


@given(RANGES, RANGES)
def test_ranges_that_share_a_version_are_never_called_a_conflict(one: str, other: str):
    both = SpecifierSet(one) & SpecifierSet(other)
    if any(both.contains(version) for version in GRID):
        assert can_agree(SpecifierSet(one), SpecifierSet(other))


def test_a_conflict_names_both_environments_and_what_each_wants():
    found = conflicts([plan("old", "numpy<2", "pillow"), plan("new", "numpy >= 2", "pillow>=10")])
    assert [tuple(conflict) for conflict in found] == [("old", "new", "numpy", "<2", ">=2")]


def test_names_are_compared_the_way_indexes_do():
    assert conflicts([plan("a", "Scikit_Image==0.20"), plan("b", "scikit-image==0.25")])


def test_a_requirement_for_another_platform_does_not_count():
    assert not conflicts([plan("a", "numpy<2; sys_platform == 'no-such-system'"), plan("b", "numpy>=2")])


def test_two_lines_about_one_package_count_together():
    assert conflicts([plan("a", "numpy>1", "numpy<2"), plan("b", "numpy>=2")])


def test_pythons_are_compared_too():
    assert conflicts([plan("a", python="3.10"), plan("b", python="3.12")])
    assert not conflicts([plan("a", python="3.10"), plan("b", python=">=3.9,<3.13")])
