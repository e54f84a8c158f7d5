"""Every folder in plugins/ is something a stranger can install, read and test."""

import configparser
import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "plugins"
PLUGINS = sorted(path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
INSTALLABLE = [path for path in PLUGINS if (path / "setup.cfg").exists()]
GROUPS = ("comfy_env.backends", "comfy_env.wrappers", "comfy_env.observers")


def entries(folder):
    config = configparser.ConfigParser()
    config.read(folder / "setup.cfg", encoding="utf-8")
    points = config["options.entry_points"]
    return {tuple(line.split(" = ", 1)) for group in GROUPS if group in points for line in points[group].strip().splitlines()}


def test_the_plugins_of_this_repository_are_looked_at():
    assert {"comfy-env-guard", "comfy-env-minimal"} <= {path.name for path in PLUGINS}


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_has_a_readme_and_tests(folder):
    assert (folder / "README.md").read_text(encoding="utf-8").startswith(f"# {folder.name}\n")
    assert list((folder / "tests").glob("test_*.py"))


@pytest.mark.parametrize("folder", INSTALLABLE, ids=lambda path: path.name)
def test_an_installable_plugin_has_a_three_line_pyproject_because_pip_wants_one(folder):
    assert len((folder / "pyproject.toml").read_text(encoding="utf-8").strip().splitlines()) == 3


@pytest.mark.parametrize("folder", INSTALLABLE, ids=lambda path: path.name)
def test_an_installable_plugins_entry_points_resolve(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    assert entries(folder)
    for _, target in entries(folder):
        module, _, path = target.partition(":")
        found = importlib.import_module(module)
        for part in filter(None, path.split(".")):
            found = getattr(found, part)
        assert found is not None
        monkeypatch.delitem(sys.modules, module)
