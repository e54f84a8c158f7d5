"""Packs written for `comfy-env.toml` load unchanged, build with what is there, or say what is not done."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from comfy_env import CallOptions, EnvPlan, WorkerPool
from comfy_env.comfyui import serializers
from comfy_env.comfyui.entry import homes
from comfy_env.comfyui.snapshot import home_of
from comfy_env.packs import legacy
from comfy_env.packs.pins import pins
from comfy_env.settings import Settings
from comfy_env.values import EnvStatus

PACKS = Path(__file__).parent / "legacy"
NAMES = ("whole", "parts", "flat", "conda", "cuda", "rooted", "named", "plain")

pytestmark = pytest.mark.shares("thread", "process", "fd", "folder")


def python(*arguments, **variables):
    """Run this interpreter."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, env={**os.environ, **variables})


@pytest.fixture(scope="module")
def copies(packs):
    """The eight packs in a host's folder of custom nodes."""
    for name in NAMES:
        shutil.copytree(PACKS / name, packs.folder / name)
    return packs.folder


@pytest.fixture(scope="module")
def host(start, copies):
    return start(*(copies / name for name in NAMES), snapshots=False)


def test_every_pack_loads_and_lists_its_nodes(host):
    names = host.python("import nodes\nanswer = sorted(name for name in nodes.NODE_CLASS_MAPPINGS if name.startswith('Legacy'))")
    assert names == sorted(["LegacyWhole", "LegacyFlat", "LegacyConda", "LegacyCuda", "LegacyRooted", "LegacyNamed", "LegacyPlain",
                            "LegacyPartsFirst", "LegacyPartsSecond", "LegacyPartsHere"])


def test_what_has_no_file_of_its_own_is_imported_in_the_host(host):
    code = """
import nodes
from comfy_env.comfyui.proxies import Proxy
answer = sorted(name for name, cls in nodes.NODE_CLASS_MAPPINGS.items() if name.startswith("Legacy") and not issubclass(cls, Proxy))
"""
    assert host.python(code) == ["LegacyPartsHere", "LegacyPlain"]


@pytest.mark.parametrize(("name", "expected"), [
    ("whole", [("venv", "3.11", ("packaging",), (("LEGACY_VALUE", "7"),), (("ping", 9),), ("nodes",))]),
    ("parts", [("venv", None, ("packaging>=22",), (), (), ("nodes.first",)),
               ("venv", None, (), (("LEGACY_VALUE", "True"),), (), ("nodes.second",))]),
    ("flat", [("venv", "3.11", (), (("LEGACY_VALUE", "flat"),), (), ("nodes",))]),
    ("named", [("venv", None, (), (("LEGACY_VALUE", "named"),), (), ("mine",))]),
])
def test_an_older_file_gives_these_environments(name, expected):
    found = homes(PACKS / name, name, "mine" if name == "named" else "nodes")
    assert [(p.backend, p.python, p.dependencies, p.variables, p.limits, home.packages) for p, home in found] == expected
    assert all(plan.torch == "host" for plan, _ in found)


def test_conda_packages_make_it_a_pixi_environment():
    (plan,) = EnvPlan.from_pack(PACKS / "conda")
    assert plan.backend == "pixi" and plan.conda.channels == ("conda-forge",)
    assert {"zlib", "conda-forge::cmake>=3.20"} <= set(plan.conda.dependencies)
    if sys.platform == "linux":
        assert "patchelf" in plan.conda.dependencies and not any("vc" in one for one in plan.conda.dependencies)


def test_extras_and_cuda_wheels_are_kept():
    (plan,) = EnvPlan.from_pack(PACKS / "cuda")
    assert "trimesh[easy]>=4" in plan.dependencies and any("nvdiffrast" in one for one in plan.dependencies)


def test_what_is_not_done_by_us_is_listed_and_no_error():
    root = legacy.root(PACKS / "rooted")
    assert dict(root.node_packs) == {"other": "github=someone/other-pack", "third": "github=someone/third tag=v1"}
    assert dict(root.types) == {"MESH": "custom"}
    told = "\n".join(legacy.notes(PACKS / "rooted"))
    assert all(f"[{name}] is not done by us" in told for name in ("apt", "brew", "dependencies", "node_packs"))


def test_the_codecs_of_an_older_pack_are_known_in_comfyui(host):
    code = """
from comfy_env.comfyui import serializers
from comfy_env.comfyui.host import host
from comfy_env.worker.wire.coded import codecs
host().pool
answer = [codecs.reads("Mesh", "MESH")([1]).points, serializers.waiting]
"""
    assert host.python(code) == [[1], []]


def test_the_codecs_of_an_older_pack_are_known_in_its_workers(settings):
    ((_, home),) = homes(PACKS / "rooted", "legacy_rooted", "nodes")

    def read():
        from comfy_env.worker.wire.coded import codecs

        return codecs.reads("Mesh", "MESH")([1]).points

    with WorkerPool(settings) as pool:
        plan = EnvPlan.existing(sys.executable, "rooted")
        options = CallOptions(callbacks={"comfy_env.state": dict})
        described = pool.call(plan, "comfy_env.worker.comfy.entry:describe", {"state": "1", "pack": home.order()}, options=options)
        assert list(described["nodes"]) == ["LegacyRooted"] and pool.call(plan, read) == [1]


def test_a_codec_file_that_does_not_load_here_keeps_the_pack(tmp_path, caplog):
    (tmp_path / "serialization.py").write_text("import meshlib\n")
    serializers.load(tmp_path / "serialization.py", "pack_that_is_not")
    assert "cannot be loaded in ComfyUI: ModuleNotFoundError" in caplog.text and "pack_that_is_not.serialization" not in sys.modules


@pytest.mark.parametrize("name", ["wrap_nodes", "isolated", "VenvWorker", "IsolatedEnvManager"])
def test_a_name_that_is_no_more_says_how_to_migrate(name):
    done = python("-c", f"from comfy_env import {name}")
    assert "ImportError" in done.stderr and "comfy-env migrate" in done.stderr


def test_an_environment_is_described_with_the_folder_of_nodes_that_is_its_own():
    first, second = EnvPlan.from_pack(PACKS / "parts")
    assert [home_of(plan).packages for plan in (first, second)] == [("nodes.first",), ("nodes.second",)]
    (whole,) = EnvPlan.from_pack(PACKS / "whole")
    assert home_of(whole).packages == ()


# ---------------------------------------------------------------- building and running

@pytest.fixture(scope="module")
def settings(place):
    return Settings(envs_folder=place / "envs", runtime_folder=place / "runtime", log_folder=place / "logs")


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", "named"])
def test_a_pack_of_the_older_shape_is_built_and_runs_in_its_environment(host, copies, place, name):
    variables = {f"COMFY_ENV_{name}": str(place / name.lower()) for name in ("ENVS", "RUNTIME", "LOGS")}
    install = copies / name / "install.py"
    install.write_text("from comfy_env import install\n\ninstall()\n")
    done = python(install, **variables)
    last = json.loads(done.stdout.splitlines()[-1])
    if not last["ready"]:   # the host's torch cannot be had from this machine's indexes
        assert done.returncode == 4 and "torch" in done.stdout
        pytest.skip("the host's torch cannot be installed here, and the pack said so")
    assert done.returncode == 0 and set(last["envs"].values()) == {"ready"}
    kind = f"Legacy{name.capitalize()}"
    prompt = {"1": {"class_type": kind, "inputs": {"text": "hello"}}, "s": {"class_type": "HostShow", "inputs": {"value": ["1", 0]}}}
    assert f" {name} " in host.texts(prompt)["s"][0]


def test_a_pack_that_is_not_built_says_so_when_it_is_called(host):
    prompt = {"1": {"class_type": "LegacyWhole", "inputs": {"text": "x"}}, "s": {"class_type": "HostShow", "inputs": {"value": ["1", 0]}}}
    error = host.run(prompt=prompt)["error"]
    assert error["exception_type"] == "comfy_env.errors.EnvNotBuilt" and "comfy-env build" in error["exception_message"]


def test_install_builds_nothing_at_import(copies, settings):
    program = f"import sys; sys.path.insert(0, {str(copies / 'named')!r}); import install"
    done = python("-c", program, COMFY_ENV_ENVS=str(settings.envs_folder / "none"))
    assert done.returncode == 0 and "comfy-env build" in done.stdout and not (settings.envs_folder / "none").exists()


def test_setup_env_is_one_quick_line_and_copied_files_are_never_overwritten(copies, tmp_path, record_property):
    program = f"""
import sys, time, types
sys.modules["folder_paths"] = types.SimpleNamespace(get_input_directory=lambda: {str(tmp_path)!r})
import runpy
runpy.run_path({str(copies / 'named' / 'prestartup_script.py')!r})
print("torch" in sys.modules, sorted(name for name in sys.modules if name in ("packaging", "psutil", "pluggy", "platformdirs")))
"""
    done = python("-c", program)
    first, last = done.stdout.splitlines()
    assert first.startswith("comfy-env ") and "named" in first and last == "False []"
    assert (tmp_path / "named" / "picture.txt").read_text() == "a workflow's picture\n"
    (tmp_path / "named" / "picture.txt").write_text("mine")
    python("-c", program)
    assert (tmp_path / "named" / "picture.txt").read_text() == "mine"
    timing = "import time\nbegun = time.perf_counter()\nfrom comfy_env import setup_env\nsetup_env()\nprint(time.perf_counter() - begun)"
    seconds = min(float(python("-c", timing).stdout.split()[-1]) for _ in range(5))
    record_property("setup_env, ms", round(1000 * seconds, 2))
    assert seconds < 0.02 * 3


# ---------------------------------------------------------------- migrating

@pytest.mark.parametrize("name", ["whole", "parts", "flat", "conda", "cuda", "rooted"])
def test_a_migrated_pack_declares_the_same_environments(name, tmp_path):
    pack = tmp_path / name
    shutil.copytree(PACKS / name, pack)
    before = EnvPlan.from_pack(pack)
    places = [home.packages for _, home in homes(pack, name, "nodes")]
    done = python("-m", "comfy_env.cli", "migrate", pack, "--write")
    assert done.returncode == 0, done.stderr
    for file in pack.rglob("comfy-env*.toml"):
        file.unlink()
    after = EnvPlan.from_pack(pack)
    assert [home.packages for _, home in homes(pack, name, "nodes")] == places
    told = [(p.backend, p.python, set(p.dependencies), p.variables, p.limits, p.conda, p.torch) for p in after]
    assert told == [(p.backend, p.python, set(p.dependencies), p.variables, p.limits, p.conda, p.torch) for p in before]


def test_a_pack_that_pins_some_version_of_us_is_listed(tmp_path):
    (tmp_path / "requirements.txt").write_text("numpy\ncomfy-env==0.4.46\n")
    (line,) = pins([tmp_path])
    assert "'comfy-env==0.4.46' would replace this comfy-env" in line and "comfy-env>=1!0" in line
    (tmp_path / "requirements.txt").write_text("numpy\ncomfy-env\n")
    assert list(pins([tmp_path])) == []


def test_the_state_of_each_pack_is_told(copies, settings):
    with WorkerPool(settings) as pool:
        states = [pool.inspect(plan, probe=False).status for name in NAMES[:-1] for plan in EnvPlan.from_pack(copies / name)]
    assert len(states) == 8 and set(states) <= {EnvStatus.MISSING, EnvStatus.READY, EnvStatus.STALE}
