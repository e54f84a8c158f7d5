"""The seam is real: comfy-env-minimal, installed by pip from its folder, is found and used through its entry point alone."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
USE = """
import json, os, sys
from comfy_env import EnvPlan, WorkerPool
from comfy_env.hooks import Registry
registry = Registry()
owner = [offer.owner for offer in registry.offers() if offer.name == "minimal"]
with WorkerPool(registry=registry) as pool:
    pid = pool.call(EnvPlan(key="x", backend="minimal"), "os:getpid")
print(json.dumps({"owner": owner, "own": pid != os.getpid(), "module": sys.modules["comfy_env_minimal"].__file__}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not (find_spec("pip") and find_spec("setuptools")), reason="needs pip and setuptools beside the tests")
def test_a_backend_installed_from_its_folder_serves_a_call(tmp_path):
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ROOT / "plugins" / "comfy-env-minimal", source)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, *install, "--target", str(site), str(source)], check=True, timeout=200, capture_output=True)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    use = [sys.executable, "-c", USE]
    answer = subprocess.run(use, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    assert told == {"owner": ["comfy-env-minimal"], "own": True, "module": str(site / "comfy_env_minimal.py")}
