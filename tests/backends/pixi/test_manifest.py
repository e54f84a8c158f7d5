"""The manifest written for a plan says what the plan says, and nothing secret."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from comfy_env.backends.pixi import manifest
from comfy_env.envs.cuda_wheels import Settled
from comfy_env.envs.host_torch import Wish
from comfy_env.envs.sources import Sources
from comfy_env.errors import PlanError
from comfy_env.values import Conda, EnvPlan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read(plan, sources=Sources(), wish=Wish(), more=()):  # noqa: B008 - frozen values
    return tomllib.loads(manifest.text(plan, Settled(plan.dependencies, more), wish, sources))


def test_the_manifest_says_what_the_plan_says():
    plan = EnvPlan(
        key="k",
        python=">=3.10,<3.13",
        dependencies=("numpy<2", "x[a]>=1", "w @ https://h/w.whl"),
        conda=Conda(("conda-forge", "nvidia"), ("ffmpeg>=6", "nvidia::cuda-toolkit 12.*", "git")),
    )
    said = read(plan)
    assert said["dependencies"] == {
        "python": ">=3.10,<3.13",
        "ffmpeg": ">=6",
        "git": "*",
        "cuda-toolkit": {"version": "12.*", "channel": "nvidia"},
    }
    assert said["pypi-dependencies"] == {
        "numpy": {"version": "<2"},
        "x": {"version": ">=1", "extras": ["a"]},
        "w": {"url": "https://h/w.whl"},
    }
    assert said["workspace"]["channels"] == ["conda-forge", "nvidia"] and said["pypi-options"] == {"no-build": True}
    assert read(EnvPlan(key="k", python="3.10"))["dependencies"]["python"] == "3.10.*"


@pytest.mark.parametrize(("line", "said"), [
    ("x 1.2 py_0", {"version": "1.2", "build": "py_0"}), ("x=1.2=py_0", {"version": "==1.2", "build": "py_0"}), ("x 12.* *_cuda", {
        "version": "12.*", "build": "*_cuda"}), ("c::x >=1,<2 h_3", {"version": ">=1,<2", "build": "h_3", "channel": "c"}),
    ("x >=1, <2", ">=1, <2"), ("x >= 1", ">= 1"), ("x=1.2", "=1.2"), ("x==1.2", "==1.2"), ("x >=1|<0.5", ">=1|<0.5"), ("x 1.2", "1.2"),
])
def test_a_build_of_a_package_is_told_apart_from_its_version(line, said):
    assert read(EnvPlan(key="k", conda=Conda((), (line,))))["dependencies"]["x"] == said


def test_python_stands_once_and_a_plan_that_names_it_twice_is_refused():
    assert read(EnvPlan(key="k", conda=Conda((), ("python 3.9.*",))))["dependencies"] == {"python": "3.9.*"}
    with pytest.raises(PlanError, match="python stands in the plan and in its conda requirements"):
        read(EnvPlan(key="k", python="3.10", conda=Conda((), ("python 3.9.*",))))


def test_a_plan_with_cuda_wheels_gets_the_very_python_they_are_looked_up_for():
    plan = EnvPlan(key="k", python=">=3.9", dependencies=("x @ cuda-wheels:",))
    said = tomllib.loads(manifest.text(plan, Settled(("x @ https://h/x.whl",)), Wish(), Sources()))
    assert said["dependencies"]["python"] == f"3.{sys.version_info[1]}.*" and said["pypi-dependencies"]["x"] == {"url": "https://h/x.whl"}


def test_a_package_that_is_asked_for_twice_stands_once_with_both_bounds():
    said = read(EnvPlan(key="k", dependencies=("num-py<2", "Num_Py[x]>=1", "num-py<2")))
    assert said["pypi-dependencies"] == {"num-py": {"version": "<2,>=1", "extras": ["x"]}}


def test_the_hosts_torch_and_its_index_are_added():
    said = read(EnvPlan(key="k"), wish=Wish(("torch==2.8.0+cu128",), ("https://t/cu128",)))
    assert said["pypi-dependencies"]["torch"] == {"version": "==2.8.0+cu128"} and said["pypi-options"]["extra-index-urls"] == ["https://t/cu128"]


def test_an_index_with_credentials_is_not_written_to_disk():
    sources = Sources({"index-url": "https://u:hunter22@h/"}, ("https://u:hunter22@h/x", "https://open/simple"), (Path("/w"),))
    text = manifest.text(EnvPlan(key="k"), Settled(()), Wish(), sources)
    assert "hunter22" not in text and "https://open/simple" in text and "/w" in text


def test_what_pixi_cannot_say_is_refused():
    for plan in (EnvPlan(key="k", dependencies=('x; python_version < "3.11"',)), *(
            EnvPlan(key="k", conda=Conda((), (line,))) for line in ("!!", "x[build=y]"))):
        with pytest.raises(PlanError):
            read(plan)
