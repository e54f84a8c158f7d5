"""What is shipped is what is written down: metadata, entry points, folders, make targets."""

from __future__ import annotations

import ast
import configparser
import importlib
import re

import pytest

import comfy_env
from comfy_env.hooks.sources import BUILT_IN

from .tree import ROOT, modules


@pytest.fixture(scope="module")
def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def points(config: configparser.ConfigParser, group: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in config["options.entry_points"][group].strip().splitlines())
    return {name.strip(): target.strip() for name, target in pairs}


def test_the_version_is_written_once_in_two_places(config):
    assert config["metadata"]["version"] == comfy_env.__version__
    assert comfy_env.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_metadata_carries_the_marker_of_the_contract(config):
    assert "comfy-env-contract" in config["metadata"]["keywords"]


def test_the_built_in_backends_come_in_through_the_entry_points(config):
    assert points(config, "comfy_env.backends") == dict(BUILT_IN)


@pytest.mark.parametrize("group", ["console_scripts", "comfy_env.backends", "pytest11"])
def test_an_entry_point_leads_to_an_object(config, group: str):
    for target in points(config, group).values():
        module, _, name = target.partition(":")
        found = importlib.import_module(module)
        assert not name or getattr(found, name) is not None


def test_every_folder_with_sources_is_a_package_and_so_is_shipped():
    folders = {module.path.parent for module in modules().values()}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_the_worker_is_written_in_the_grammar_of_python_3_9():
    for module in modules().values():
        if module.name.startswith("comfy_env.worker"):
            ast.parse(module.path.read_text(encoding="utf-8"), str(module.path), feature_version=(3, 9))


def test_the_documents_name_only_make_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)}
    assert {"demo", "test", "check", "bench"} <= named
    assert named <= targets


def test_a_make_line_of_the_documents_chooses_tests_by_TESTS_for_ARGS_only_adds_some():
    texts = [page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))]
    assert [line for text in texts for line in text.splitlines() if re.search(r'make test .*ARGS="?tests/', line)] == []


def test_the_pyproject_file_holds_the_build_system_alone():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert len(text.strip().splitlines()) == 3
    assert re.findall(r"^\[(.+)\]$", text, re.MULTILINE) == ["build-system"]
