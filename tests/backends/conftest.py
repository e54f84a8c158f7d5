"""Settings for environments that are built in a folder of the test's own."""

import pytest

from comfy_env.settings import Settings


@pytest.fixture
def settings(tmp_path):
    return Settings(envs_folder=tmp_path / "envs", log_folder=tmp_path / "logs")
