"""One function gives an environment's folder, and no two keys share one (field case B23)."""

from __future__ import annotations

import string
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from comfy_env.envs import paths
from comfy_env.settings import Settings
from comfy_env.values import EnvPlan

KEYS = st.text(min_size=1, max_size=120).filter(lambda key: not set(key) & set("/\\\0\n") and key not in (".", ".."))
SEEN = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp"), exclude_characters="/\\"), min_size=1, max_size=120)
SAFE = set(string.ascii_lowercase + string.digits + "._-")


@given(st.lists(KEYS, unique=True, min_size=2, max_size=20))
def test_different_keys_get_different_safe_names(keys):
    names = [paths.folder_name(key) for key in keys]
    assert len(set(names)) == len(keys)
    assert all(set(name) <= SAFE and len(name) <= 80 and not name.startswith(".") and not name.endswith(".") for name in names)


def test_keys_that_differ_in_case_alone_differ_where_case_is_lost():
    assert len({paths.folder_name(key).lower() for key in ("Demo", "demo", "DEMO")}) == 3


def test_a_name_that_windows_reserves_is_not_used():
    assert paths.folder_name("con") != "con" and paths.folder_name("lpt1.x") != "lpt1.x"


def test_a_readable_key_is_its_own_name():
    assert paths.folder_name("demo-old-1a2b3c4d") == "demo-old-1a2b3c4d"


@given(SEEN.filter(lambda key: key not in (".", "..")), st.sampled_from(["envs", "a b [x] é中 %TEMP% & (1)", "long/" * 45 + "x"]))
def test_the_path_depends_on_key_and_root_alone(key, root):
    settings = Settings(envs_folder=Path("/x") / root)
    one, other = EnvPlan(key=key), EnvPlan(key=key, dependencies=("six",), python="3.9")
    assert paths.env_folder(one, settings) == paths.env_folder(other, settings)
    assert paths.env_folder(one, settings).parent == Path("/x") / root


def test_a_relative_root_is_made_absolute():
    assert paths.envs_root(Settings(envs_folder=Path("here"))) == Path.cwd() / "here"
