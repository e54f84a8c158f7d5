"""Packs are given by folder or plan; each class belongs to one environment."""

from __future__ import annotations

import logging

import pytest

from comfy_env.errors import BuildCancelled, BuildFailed, PlanError
from comfy_env.runner import Runner
from comfy_env.runner.catalog import name_of
from comfy_env.values import BuildStep, EnvPlan

from .conftest import workflow
from .fakes import Diary


def test_a_folder_is_read_through_its_table(pack, pool, tmp_path):
    pack("a")
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.comfy-env]\npython = "3.10"\ndependencies = ["numpy<2"]\n', encoding="utf-8")
    runner = Runner(pool, [tmp_path / "a"])
    assert [(plan.root, plan.python) for plan in runner.plans] == [((tmp_path / "a").resolve(), "3.10")]
    assert runner.run(workflow(n1=("Show", {"value": 1}))).ok


def test_a_folder_without_a_table_is_refused(tmp_path, pool, pack):
    pack("a")
    with pytest.raises(PlanError):
        Runner(pool, [tmp_path / "a"])


def test_a_plan_without_a_folder_is_refused(pool):
    with pytest.raises(PlanError, match="no root"):
        Runner(pool, [EnvPlan(key="x")])


def test_classes_go_to_the_environment_whose_patterns_name_them(pack, pool, tmp_path):
    plan = pack("a", key="rest")
    sums = EnvPlan(key="sums", root=plan.root, nodes=("S?m", "Spread"))
    flow = workflow(n1=("Spread", {"count": 3}), n2=("Sum", {"numbers": ["1", 0]}), n3=("Show", {"value": ["2", 0]}))
    report = Runner(pool, [plan, sums]).run(flow)
    assert {row.node: row.env for row in report.rows} == {"1": "sums", "2": "sums", "3": "rest"}


def test_a_class_two_packs_offer_is_the_later_ones_and_that_is_logged(pack, pool, caplog):
    with caplog.at_level(logging.WARNING):
        report = Runner(pool, [pack("a"), pack("b")]).run(workflow(n1=("Show", {"value": 1})))
    assert report.row("1").env == "env-b"
    assert "node class Show" in caplog.text


def test_libraries_of_the_plan_are_told_with_their_versions(pack, pool):
    import packaging

    row = Runner(pool, [pack(dependencies=("packaging>=1", "no-such-thing"))]).run(workflow(n1=("Show", {"value": 1}))).row("1")
    assert row.libraries == (("packaging", packaging.__version__),)


@pytest.mark.parametrize(("line", "name"), [
    ("numpy<2", "numpy"), ("a.b-c_d[x]>=1; python_version<'3'", "a.b-c_d"), (" x @ https://h/x.whl", "x"),
])
def test_a_requirement_names_its_distribution(line, name):
    assert name_of(line) == name


def test_build_builds_every_environment_and_tells_of_it(pack, pool):
    diary = Diary()
    original = pool.build

    def told(plan, progress):
        progress(BuildStep(plan.key, "working", 0.5))
        return original(plan, progress)

    pool.build = told
    states = Runner(pool, [pack("a"), pack("b")], watcher=diary).build()
    assert [state.key for state in states] == ["env-a", "env-b"]
    assert sorted(diary.heard) == [("building", "env-a"), ("building", "env-b")]


def test_a_build_that_fails_cancels_the_others(pack, pool, eventually):
    outcome = []

    def build(plan, progress):
        if plan.key == "env-a":
            raise BuildFailed("no wheel", env=plan.key)
        try:
            eventually(lambda: progress(BuildStep(plan.key, "working")))
        except BuildCancelled as cancelled:
            outcome.append(cancelled)
            raise

    pool.build = build
    with pytest.raises(BuildFailed, match="no wheel"):
        Runner(pool, [pack("a"), pack("b")]).build()
    assert outcome
