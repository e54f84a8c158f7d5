"""The demo gives the packs two Pythons that really ran here, whatever the machine has."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("found", "chosen"), [
    ((9, 10, 11, 12, 13), (9, 13)), ((11,), (11, 11)), ((11, 14), (11, 14)), ((12, 13), (12, 13)), ((9, 10), (9, 10)),
    ((13,), (None, 13)), ((13, 14), (None, 14)), ((), (None, None)),
])
def test_two_pythons_are_taken_where_two_are_found(part, found, chosen):
    assert part("worlds").choose(found) == chosen


def test_the_packs_ask_for_conflicting_numpys_where_an_old_python_answers(part):
    chosen = part("worlds").worlds((10, 13))
    assert (chosen.classic.python, chosen.modern.python) == ("3.10", "3.13")
    assert "numpy==1.26.*" in chosen.classic.dependencies and "numpy>=2.2" in chosen.modern.dependencies


def test_the_packs_disagree_on_pillow_where_no_old_python_answers(part):
    chosen = part("worlds").worlds((13,))
    assert (chosen.classic.python, chosen.modern.python) == ("3.13", "3.13")
    assert "pillow==11.*" in chosen.classic.dependencies and "pillow>=12" in chosen.modern.dependencies
    assert not any("1.26" in line for line in chosen.classic.dependencies)


def test_only_interpreters_that_ran_are_counted(part, interpreters):
    assert [f"3.{minor}" for minor in part("worlds").answering() if minor < 14] == list(interpreters)
