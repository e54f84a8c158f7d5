"""The exploration is run once and looked at by several tests."""

from __future__ import annotations

import pytest

from comfy_env.testing.explore import Exploration, explore
from comfy_env.testing.lifecycle_scenarios import SCENARIOS


@pytest.fixture(scope="session")
def explored() -> list[Exploration]:
    return [explore(scenario) for scenario in SCENARIOS]
