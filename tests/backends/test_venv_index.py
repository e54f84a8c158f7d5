"""A build from the package index this machine is set up with."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from comfy_env.backends.venv import VenvBackend
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan, EnvStatus


def freeze():
    return subprocess.run([sys.executable, "-m", "pip", "freeze", "--all"], capture_output=True, check=True, timeout=120).stdout


@pytest.mark.real
@pytest.mark.parametrize("uv", ["", "off"])
def test_a_package_of_the_index_is_installed_and_the_host_is_untouched(tmp_path, uv):
    """Field cases B31, B33: pip's settings of this machine serve both installers."""
    before = freeze()
    backend = VenvBackend(replace(Settings(envs_folder=tmp_path / "e", log_folder=tmp_path / "l"), uv=uv))
    state = backend.comfy_env_build(EnvPlan(key="six", dependencies=("six==1.16.0",)), lambda step: None)
    assert state.status is EnvStatus.READY and dict(state.versions)["six"] == "1.16.0"
    assert freeze() == before
