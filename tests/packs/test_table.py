"""The table is read exactly, or refused with file, line, what is wrong and what was meant."""

from __future__ import annotations

import pytest

from comfy_env import EnvPlan, PlanError
from comfy_env.packs import document, table
from comfy_env.packs.plan import declares_envs
from comfy_env.values import Conda

FULL = """
[project]
name = "full"
[tool.comfy-env]
backend = "pixi"
python = ">=3.10,<3.13"
dependencies = ["numpy<2", "six"]
nodes = ["*.py"]
torch = "host"
indexes = ["https://example.org/simple"]
conda = { channels = ["conda-forge"], dependencies = ["ffmpeg>=6"] }
env = { OMP_NUM_THREADS = "2" }
secrets = ["HF_TOKEN"]
device = "cuda:1"
limits = { call-silence = 30, birth = 120 }
allow-source-builds = true
api = 1
comfy = true
fallback = "in-process"
"""


def test_every_key_arrives_in_the_plan(pack):
    folder = pack(FULL)
    (plan,) = EnvPlan.from_pack(str(folder))
    assert (plan.backend, plan.python, plan.dependencies, plan.nodes) == ("pixi", ">=3.10,<3.13", ("numpy<2", "six"), ("*.py",))
    assert (plan.torch, plan.indexes, plan.conda) == ("host", ("https://example.org/simple",), Conda(("conda-forge",), ("ffmpeg>=6",)))
    assert (plan.variables, plan.secrets, plan.device) == ((("OMP_NUM_THREADS", "2"),), ("HF_TOKEN",), "cuda:1")
    assert (plan.limits, plan.allow_source_builds, plan.comfy, plan.fallback) == (
        (("birth", 120), ("call_silence", 30)),
        True,
        True,
        "in-process",
    )
    assert (plan.root, plan.source) == (folder.resolve(), f"{folder}/pyproject.toml:4")


@pytest.mark.parametrize(("written", "zygote"), [("false", 0), ("true", 1), ("2", 2)])
def test_an_environment_may_opt_out_of_its_zygote(pack, written, zygote):
    (plan,) = EnvPlan.from_pack(pack(f"[tool.comfy-env]\nlimits = {{ zygote = {written} }}\n"))
    assert plan.limits == (("zygote", zygote),)


def test_an_empty_table_is_one_environment_of_defaults(pack):
    (plan,) = EnvPlan.from_pack(pack("[tool.comfy-env]\n"))
    assert (plan.backend, plan.dependencies, plan.torch, plan.python) == ("venv", (), "none", None)


def test_several_environments_have_several_keys(pack):
    plans = EnvPlan.from_pack(
        pack('[project]\nname="p"\n[tool.comfy-env.envs.old]\npython="3.9"\n[tool.comfy-env.envs.new]\npython="3.13"\n')
    )
    assert [plan.python for plan in plans] == ["3.9", "3.13"]
    assert plans[0].key.startswith("p-old-") and plans[1].key.startswith("p-new-")


def test_an_environments_name_with_an_escape_is_refused_with_file_and_line(pack):
    folder = pack('[tool.comfy-env.envs."a\\u001b[31m"]\npython = "3.10"\n')
    with pytest.raises(PlanError, match=r"pyproject.toml:1.*cannot be an environment's name") as caught:
        EnvPlan.from_pack(folder)
    assert "\x1b" not in str(caught.value)


def test_a_platform_overrides_the_general_values_and_the_narrow_one_wins(pack):
    text = (
        '[tool.comfy-env]\ndependencies=["a"]\ntorch="own"\n[tool.comfy-env.platform.linux]\ndependencies=["b"]\n'
        '[tool.comfy-env.platform.linux-arm64]\ndependencies=["c"]\n'
    )
    read = document.read(pack(text))

    def values(*tags):
        return table.read(read, tags)[0].values

    assert values("windows", "windows-x86_64") == {"dependencies": ("a",), "torch": "own"}
    assert values("linux", "linux-x86_64")["dependencies"] == ("b",)
    assert values("linux", "linux-arm64") == {"dependencies": ("c",), "torch": "own"}


WRONG = {
    'dependecies = ["six"]': (5, "unknown key 'dependecies'", "did you mean 'dependencies'"),
    'requirements = ["six"]': (5, "unknown key", "dependencies"),
    'dependencies = [\n"six",\n"-r ../x",\n]': (7, "-r", "write the lines"),
    'dependencies = "six"': (5, "must be a list", ""),
    "dependencies = [1]": (5, "must be a text", ""),
    "python = 3.10": (5, "reads a number", 'python = "3.10"'),
    'python = "2.7"': (5, "no Python", "3.9"),
    'python = "three"': (5, "not a Python version", ""),
    'torch = "hots"': (5, "must be one of", "did you mean 'host'"),
    'indexes = ["https://u:p4ssword@h/"]': (5, "credentials", "keyring"),
    'env = { PYTHONPATH = "/x" }': (5, "alone", ""),
    "env = { A = 1 }": (5, "must be a text", "quotes"),
    'secrets = ["HF TOKEN"]': (5, "not the name", ""),
    "limits = { brith = 3 }": (5, "unknown limit", "did you mean 'birth'"),
    "limits = { birth = -1 }": (5, "must be a number from", ""),
    "limits = { birth = true }": (5, "must be a number from", ""),
    "limits = { zygote = 3 }": (5, "must be a number from 0 to 2", ""),
    "comfy = 1": (5, "true or false", ""),
    "conda = { chanels = [] }": (5, "unknown key 'chanels'", "channels"),
    'conda = { dependencies = ["../x"] }': (5, "path", ""),
    'conda = { channels = ["/srv/channel"] }': (5, "path", "file:///folder"),
    'conda = { channels = ["file:channel"] }': (5, "the channel 'file:channel' is refused", "file:///folder"),
    'conda = { channels = ["file://host/channel"] }': (5, "the channel 'file://host/channel' is refused", "file:///folder"),
    'conda = { channels = ["http://h/channel"] }': (5, "the channel 'http://h/channel' is refused", "https URL"),
    'conda = { channels = ["https://u:p4ssword@h/"] }': (5, "the channel", "keyring"),
    'conda = { dependencies = ["file:///srv/x::y"] }': (5, "is refused", ""),
    'fallback = "inprocess"': (5, "must be one of", "in-process"),
    'api = "one"': (5, "not an API level", ">=1"),
    "\n[tool.comfy-env.platform.linus]": (6, "unknown platform", "did you mean 'linux'"),
    '\n[tool.comfy-env.platform.linux]\ntorhc = "own"': (7, "unknown key", "did you mean 'torch'"),
    'torch = "own"\n[tool.comfy-env.envs.a]': (5, "beside envs", "move it"),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_told_with_file_line_and_what_was_meant(pack, text):
    line, what, hint = WRONG[text]
    folder = pack('[project]\nname = "p"\n\n[tool.comfy-env]\n' + text)
    with pytest.raises(PlanError) as caught:
        EnvPlan.from_pack(folder)
    assert f"{folder}/pyproject.toml:{line}: " in caught.value.message
    assert what in caught.value.message and hint in caught.value.hint
    assert "p4ssword" not in str(caught.value)


def test_a_channel_in_a_folder_of_this_machine_is_named_by_its_url(pack):
    folder = pack('[tool.comfy-env]\nconda = { channels = ["file:///srv/my%20channel"], dependencies = ["x"] }\n')
    assert EnvPlan.from_pack(folder)[0].conda.channels == ("file:///srv/my%20channel",)


def test_text_that_is_not_toml_is_told_with_its_line(pack):
    with pytest.raises(PlanError, match=r"not valid TOML.*line 2"):
        EnvPlan.from_pack(pack("a = 1\nb = = 2\n"))


def test_bytes_that_are_not_utf8_are_told_with_their_line(pack):
    folder = pack("")
    (folder / "pyproject.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(PlanError, match=r"pyproject\.toml:2: not UTF-8"):
        EnvPlan.from_pack(folder)


def test_an_editors_byte_order_mark_and_line_ends_are_accepted(pack):
    folder = pack("")
    (folder / "pyproject.toml").write_bytes(b"\xef\xbb\xbf[tool.comfy-env]\r\npython = '3.10'\r\n")
    assert EnvPlan.from_pack(folder)[0].python == "3.10"


def test_a_folder_without_a_declaration_says_what_to_write(pack, tmp_path):
    with pytest.raises(PlanError, match="declares no environment"):
        EnvPlan.from_pack(pack("[project]\nname = 'x'\n"))
    with pytest.raises(PlanError, match="there is no folder"):
        EnvPlan.from_pack(tmp_path / "nowhere")
    with pytest.raises(PlanError, match="has no pyproject.toml"):
        EnvPlan.from_pack(tmp_path)
    assert not declares_envs(tmp_path) and not declares_envs(pack("")) and declares_envs(pack("[tool.comfy-env]"))


def test_a_pack_that_wants_another_api_is_refused_alone_with_what_it_wants(pack):
    good = [pack(f"[tool.comfy-env]\napi = {level}\n", f"p{i}") for i, level in enumerate(["1", '">=1"', '"1"'])]
    assert all(EnvPlan.from_pack(folder) for folder in good)
    with pytest.raises(PlanError, match=r"newer 3\.1 wants comfy_env API >=7, this one offers 1"):
        EnvPlan.from_pack(pack('[project]\nname="newer"\nversion="3.1"\n[tool.comfy]\nPublisherId="x"\n[tool.comfy-env]\napi = 7\n', "q"))


def test_a_plan_of_the_public_class_can_also_be_made_by_hand():
    plan = EnvPlan.existing("/usr/bin/python3", "k", dependencies=["six"])
    assert isinstance(plan, EnvPlan) and plan.dependencies == ("six",)


def test_indexes_may_be_a_table_that_names_packages_of_cuda_wheels(pack):
    (plan,) = EnvPlan.from_pack(pack(
        '[tool.comfy-env]\ndependencies = ["a"]\n[tool.comfy-env.indexes]\nextra = ["https://h/s"]\ncuda = ["k", "k2>=1"]\n'))
    assert plan.indexes == ("https://h/s",)
    assert [line.replace(" ", "") for line in plan.dependencies] == ["a", "k@cuda-wheels:", "k2@cuda-wheels:>=1"]
    with pytest.raises(PlanError, match=r"indexes.cuda.0: 'a b' is not a package"):
        EnvPlan.from_pack(pack('[tool.comfy-env]\nindexes = { cuda = ["a b"] }\n', "bad"))
