"""A pack's own pixi manifest, read as far as it can be made without pixi; the rest is refused by name."""

from __future__ import annotations

import pytest

from comfy_env.errors import PlanError, PlatformMissing
from comfy_env.packs import identity, pixi_env, pixi_manifest
from comfy_env.packs.plan import EnvPlan, declares_envs
from comfy_env.values import Conda, PackId

HEAD = '[workspace]\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n'


@pytest.fixture
def folder(tmp_path):
    def write(text, name="pixi.toml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def read(folder):
    def parse(text, environment="default", platform="linux-64", name="pixi.toml", **more):
        return pixi_env.read(pixi_manifest.find(folder(text, name)), environment, platform, **more)

    return parse


def test_dependencies_of_both_kinds_are_said_as_specs(read):
    env = read(HEAD + """
[dependencies]
python = "3.11.*"
ffmpeg = ">=6,<7"
git = "*"
cudnn = { version = "9.*", build = "cuda12*", channel = "nvidia", build-number = 3 }
[constraints]
openssl = ">=3"
[pypi-dependencies]
einops = "*"
trimesh = { version = ">=4", extras = ["easy"] }
torch = { version = "*", index = "https://download.pytorch.org/whl/cu128" }
wheel = { url = "https://h/x-1-py3-none-any.whl" }
""")
    assert env.conda == ('python[version="3.11.*"]', 'ffmpeg[version=">=6,<7"]', "git",
                         'cudnn[version="9.*",build="cuda12*",channel="nvidia",build_number="3"]')
    assert env.constraints == ('openssl[version=">=3"]',)
    assert env.pypi == ("einops", "trimesh[easy]>=4", "torch", "wheel @ https://h/x-1-py3-none-any.whl")
    assert env.indexes == ("https://download.pytorch.org/whl/cu128",) and env.channels == ("conda-forge",)


def test_a_target_replaces_a_general_entry_and_another_platforms_is_left_out(read):
    env = read(HEAD + """
[dependencies]
python = "3.10.*"
[target.unix.dependencies]
a = "1.*"
[target.linux.dependencies]
python = "3.11.*"
[target.linux-64.dependencies]
a = "2.*"
[target.win-64.dependencies]
b = "*"
""")
    assert env.conda == ('python[version="3.11.*"]', 'a[version="2.*"]')


def test_an_environment_is_the_union_of_its_features_and_the_default_one(read):
    text = HEAD + """
[dependencies]
python = "3.11.*"
[feature.card]
channels = ["nvidia", { channel = "first", priority = 5 }]
[feature.card.dependencies]
python = "<3.12"
cuda = "12.*"
[feature.card.activation.env]
A = "card"
[activation]
scripts = ["setup.sh"]
env = { A = "default", B = 1 }
[environments]
card = { features = ["card"] }
alone = { features = ["card"], no-default-feature = true }
inline = { dependencies = { x = "*" } }
"""
    card = read(text, "card")
    assert card.conda == ('python[version="<3.12"]', 'cuda[version="12.*"]', 'python[version="3.11.*"]')
    assert card.channels == ("first", "nvidia", "conda-forge") and card.scripts == ("setup.sh",)
    assert dict(card.variables) == {"A": "card", "B": "1"}
    assert read(text, "alone").conda == ('python[version="<3.12"]', 'cuda[version="12.*"]')
    assert read(text, "inline").conda == ("x", 'python[version="3.11.*"]')


def test_a_pyprojects_own_requirements_take_part(read):
    env = read("""
[project]
name = "p"
requires-python = ">=3.11"
dependencies = ["einops>=0.6"]
[tool.pixi.workspace]
channels = ["conda-forge"]
platforms = ["linux-64"]
[tool.pixi.pypi-options]
index-url = "https://h/simple"
extra-index-urls = ["https://i/simple"]
find-links = [{ path = "wheels" }]
""", name="pyproject.toml")
    assert env.conda == ('python[version=">=3.11"]',) and env.pypi == ("einops>=0.6",)
    assert (env.index_url, env.indexes) == ("https://h/simple", ("https://i/simple",)) and env.find_links[0].endswith("/wheels")


def test_virtual_packages_are_needs_of_the_machine(read):
    text = '[workspace]\nchannels = ["c"]\nplatforms = [{ platform = "linux-64", cuda = "12.0", glibc = "2.28" }, "win-64"]\n'
    assert read(text).needs == (("__cuda", "12.0"), ("__glibc", "2.28"))
    older = HEAD + '[system-requirements]\ncuda = "12"\nlibc = { family = "glibc", version = "2.17" }\n'
    assert read(older).needs == (("__cuda", "12"), ("__glibc", "2.17"))


def test_a_platform_that_is_not_declared_has_an_error_of_its_own(read):
    with pytest.raises(PlatformMissing, match="not declared for osx-arm64") as caught:
        read(HEAD, platform="osx-arm64")
    assert "linux-64" in caught.value.hint and "pixi.toml:3" in caught.value.message


@pytest.mark.parametrize(("text", "line", "said"), [
    ("[dependencies]\nx = { path = './x' }\n", 5, "comes from a path"),
    ("[dependencies]\nx = { git = 'https://h/x' }\n", 5, "comes from a git"),
    ("[pypi-dependencies]\nx = { path = '.', editable = true }\n", 5, "'path' of x"),
    ("[package]\nname = 'x'\n", 4, "package needs pixi itself"),
    ("[dev]\nx = { path = '.' }\n", 4, "dev needs pixi itself"),
    ("[build-dependencies]\nx = '*'\n", 4, "build-dependencies needs pixi itself"),
    ("[system-requirements]\nlibc = { family = 'musl', version = '1' }\n", 5, "needs pixi itself"),
    ("[system-requirements]\nsomething = '1'\n", 5, "'something' needs pixi itself"),
    ("[pypi-options]\nindex-strategy = 'unsafe-best-match'\n", 5, "pypi-options.index-strategy needs pixi itself"),
    ("[pypi-options]\nfind-links = [{ url = 'https://h/' }]\n", 5, "needs pixi itself"),
    ("[environments]\ndefault = { features = [], solve-group = 'g' }\n", 5, "environments.default.solve-group needs pixi itself"),
    ("[environments]\ndefault = ['nothing']\n", 5, "there is no feature 'nothing'"),
    ("[pypi-options]\nindex-url = 'https://u:secret@h/'\n", 5, "carries credentials"),
    ("[dependencies]\nx = 'a\"b'\n", 5, "cannot be part of a match spec"),
])
def test_what_needs_pixi_itself_is_refused_with_file_and_line(read, text, line, said):
    with pytest.raises(PlanError) as caught:
        read(HEAD + text)
    assert said in caught.value.message and f"pixi.toml:{line}" in caught.value.message
    assert "secret" not in str(caught.value) and caught.value.hint


def test_an_unused_environment_that_cannot_be_made_is_nobodys_trouble(read):
    other = "[feature.f.dependencies]\nx = { path = '.' }\n[environments]\nf = { features = ['f'], solve-group = 'g' }\n"
    env = read(HEAD + "[dependencies]\na = '*'\n" + other)
    assert env.conda == ("a",)


def test_a_pool_of_versions_is_looked_up(read):
    env = read(HEAD + "[workspace.dependencies]\nnumpy = '1.*'\n[dependencies]\nnumpy = { workspace = true }\n")
    assert env.conda == ('numpy[version="1.*"]',)


# ---------------------------------------------------------------- which manifest a plan is made from

def test_asking_for_the_plan_of_a_pack_with_a_manifest_only_is_the_declaration(folder):
    pack = folder(HEAD)
    (plan,) = EnvPlan.from_pack(pack)
    assert plan.backend == "pixi" and pixi_manifest.of_plan(plan).file == pack / "pixi.toml"
    assert not declares_envs(pack), "a scan of many packs leaves it alone"


def test_what_a_plan_adds_to_a_manifest_is_refused_and_an_empty_conda_table_settles_it(folder):
    pack = folder(HEAD)
    plan = EnvPlan(key="k", backend="pixi", root=pack, python="3.11", dependencies=("x",))
    with pytest.raises(PlanError, match="python, dependencies stand beside"):
        pixi_manifest.of_plan(plan)
    assert pixi_manifest.of_plan(EnvPlan(key="k", backend="pixi", root=pack, dependencies=("x",), conda=Conda())) is None
    assert pixi_manifest.of_plan(EnvPlan(key="k", backend="pixi", root=None)) is None


def test_an_environment_is_found_by_the_name_of_the_plan(folder):
    manifest = pixi_manifest.find(folder(HEAD + "[feature.f]\n[environments]\ncard = ['f']\n"))
    pack = PackId("someone/pack")
    named = EnvPlan(key=identity.key(pack, "card"), backend="pixi", pack=pack)
    other = EnvPlan(key=identity.key(pack, "other"), backend="pixi", pack=pack)
    assert pixi_manifest.environment_of(named, manifest) == "card"
    assert pixi_manifest.environment_of(other, manifest) == pixi_manifest.environment_of(EnvPlan(key="k"), manifest) == "default"
