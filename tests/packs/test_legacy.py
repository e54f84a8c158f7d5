"""Packs written for `comfy-env.toml` load unchanged: three layouts, and each table of the file."""

from __future__ import annotations

import sys

import pytest
from packaging.requirements import Requirement

from comfy_env.errors import PlanError
from comfy_env.packs import legacy
from comfy_env.packs.plan import EnvPlan, declares_envs, is_pack
from comfy_env.values import Conda

HERE = {"linux": "linux-64", "darwin": "osx-arm64"}.get(sys.platform, "win-64")
FULL = """
python = "3.11"   # bpy needs it

[workspace]
channels = ["conda-forge", "someone"]

[dependencies]
cgal = "*"
scipy = ">=1.11,<1.17"
pinned = "2.1"
bpy = {version = "*", channel = "someone"}

[target.linux.dependencies]
mesalib = "*"
scipy = ">=1.12"

[target.win-64.dependencies]
never-here = "*"

[pypi-dependencies]
einops = "*"
trimesh = { version = ">=4", extras = ["easy"] }
special = { version = ">=0.2.0", index = "https://example.org/simple/" }

[cuda]
packages = ["nvdiffrast", "flex_gemm==0.3", "torch", "torchvision"]

[env_vars]
KMP_DUPLICATE_LIB_OK = "TRUE"
OMP_NUM_THREADS = 1

[options]
health_check_timeout = 12.5
"""


@pytest.fixture
def write(tmp_path):
    """`write("nodes/comfy-env.toml", text)` writes a file of the pack and returns the pack's folder."""

    def put(name: str, text: str):
        file = tmp_path / "pack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return tmp_path / "pack"

    return put


@pytest.mark.skipif(sys.platform != "linux", reason="the expected target table is Linux's")
def test_every_table_of_a_file_is_in_the_plan(write):
    (plan,) = EnvPlan.from_pack(write("nodes/comfy-env.toml", FULL))
    assert (plan.backend, plan.python, plan.torch) == ("pixi", "3.11", "host")
    assert plan.conda == Conda(("conda-forge", "someone"), ("cgal", "scipy>=1.12", "pinned 2.1", "someone::bpy", "mesalib"))
    assert plan.dependencies[:3] == ("einops", "trimesh[easy]>=4", "special>=0.2.0")
    assert [(wheel.name, wheel.url) for wheel in map(Requirement, plan.dependencies[3:])] == [
        ("nvdiffrast", "cuda-wheels:"), ("flex_gemm", "cuda-wheels:==0.3"), ("torch", "cuda-wheels:"), ("torchvision", "cuda-wheels:")]
    assert plan.indexes == ("https://example.org/simple/",)
    assert plan.variables == (("KMP_DUPLICATE_LIB_OK", "TRUE"), ("OMP_NUM_THREADS", "1"))
    assert plan.limits == (("ping", 12.5),)
    assert plan.source.endswith("nodes/comfy-env.toml:1")


def test_a_file_without_conda_packages_needs_no_conda(write):
    (plan,) = EnvPlan.from_pack(write("comfy-env.toml", "[pypi-dependencies]\neinops = '*'\n"))
    assert (plan.backend, plan.conda, plan.dependencies) == ("venv", None, ("einops",))


def test_three_layouts_give_their_environments(write):
    write("nodes/first/comfy-env.toml", "[pypi-dependencies]\na = '*'\n")
    folder = write("nodes/second/comfy-env.toml", "[pypi-dependencies]\nb = '*'\n")
    first, second = EnvPlan.from_pack(folder)
    assert (first.dependencies, second.dependencies) == (("a",), ("b",)) and first.key != second.key
    assert [(env.name, env.folder.name) for env in legacy.envs(folder)] == [("first", "first"), ("second", "second")]


def test_a_root_file_with_only_root_tables_is_no_environment(write):
    write("nodes/comfy-env.toml", "[pypi-dependencies]\na = '*'\n")
    folder = write("comfy-env.toml", "[node_reqs]\nOther = 'someone/Other'\n")
    assert [env.name for env in legacy.envs(folder)] == [""]
    assert legacy.root(folder).node_packs == (("Other", "github=someone/Other"),)


def test_what_is_not_done_is_listed_and_no_error(write):
    write("nodes/comfy-env.toml", "[pypi-dependencies]\na = '*'\n[apt]\npackages = ['x']\n[strange]\n")
    folder = write("comfy-env-root.toml", (
        "python = '3.11'\n[apt]\npackages = ['libgl1']\n[cuda]\npackages = ['a']\n[types]\nMESH = 'custom'\n"
        "[node_packs]\nA = {github = 'o/a', tag = 'v1'}\n"))
    (env,) = legacy.envs(folder)
    assert ["[apt] is not done by us" in env.notes[0], "[strange] is not known" in env.notes[1]] == [True, True]
    root = legacy.root(folder)
    assert root.types == (("MESH", "custom"),) and root.node_packs == (("A", "github=o/a tag=v1"),)
    told = "\n".join(root.notes)
    assert all(f"[{name}] is not done by us" in told for name in ("python", "apt", "cuda", "node_packs"))
    assert "comfy-env-root.toml:2" in told


@pytest.mark.parametrize(("text", "line", "said"), [
    ("[dependencies]\nx = {path = '.'}\n", 2, "built from sources"),
    ("[dependencies]\nx = {version = '1', build = 'y'}\n", 2, "'build' of x is not known"),
    ("[pypi-dependencies]\n\n'-r x' = '*'\n", 3, "option"),
    ("[pypi-dependencies]\nx = {git = 'https://h/x'}\n", 2, "built from source"),
    ("python = 3.11\n", 1, "without quotes"),
    ("[workspace]\nchannels = ['/etc']\n[dependencies]\nx = '*'\n", 2, "is a path"),
    ("[cuda]\npackages = ['a @ https://h/a.whl']\n", 2, "must be a name"),
    ("[options]\nhealth_check_timeout = -1\n", 2, "must be a number"),
    ("[old]\npython = '3.11'\n", 0, "nothing in it is known"),
])
def test_what_is_wrong_is_told_with_file_and_line(write, text, line, said):
    with pytest.raises(PlanError) as caught:
        EnvPlan.from_pack(write("nodes/comfy-env.toml", text))
    assert said in caught.value.message and (f"comfy-env.toml:{line}" in caught.value.message or not line)


def test_a_table_of_ours_goes_before_the_older_file(write):
    write("nodes/comfy-env.toml", "[pypi-dependencies]\na = '*'\n")
    folder = write("pyproject.toml", "[project]\nname = 'p'\n[tool.comfy-env]\ndependencies = ['b']\n")
    assert [plan.dependencies for plan in EnvPlan.from_pack(folder)] == [("b",)]
    assert declares_envs(folder) and is_pack(folder)


def test_a_pack_without_any_file_is_none(tmp_path):
    assert not is_pack(tmp_path) and not declares_envs(tmp_path)
