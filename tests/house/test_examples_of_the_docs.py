"""The examples in the documents run: the backend of the guide serves a call, the packs' tables are valid."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from comfy_env import EnvPlan, WorkerPool
from comfy_env.cli.parser import build_parser
from comfy_env.hooks import Registry

from .tree import ROOT

GUIDES = ROOT / "docs" / "guides"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_backend_of_the_guide_serves_a_call():
    names: dict[str, object] = {}
    exec(blocks(GUIDES / "author-a-backend.md", "python")[0], names)
    registry = Registry()
    registry.register("nice", names["backend"])
    plan = EnvPlan(key="nice", backend="nice", interpreter=Path(sys.executable))
    with WorkerPool(registry=registry) as pool:
        assert pool.call(plan, "os:getpriority", 0, 0) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)


@pytest.mark.parametrize("table", blocks(GUIDES / "author-a-pack.md", "toml"))
def test_a_table_of_the_guide_is_valid(table: str, tmp_path: Path):
    head = "" if "[project]" in table else '[project]\nname = "my-pack"\n\n'
    (tmp_path / "pyproject.toml").write_text(head + table, encoding="utf-8")
    assert EnvPlan.from_pack(tmp_path)


@pytest.mark.parametrize("page", [ROOT / "README.md", *GUIDES.glob("*.md")], ids=lambda page: page.name)
def test_python_in_the_documents_compiles(page: Path):
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


def test_the_keys_of_the_table_are_all_in_the_guide():
    from comfy_env.packs.table import CHECKS

    text = (GUIDES / "author-a-pack.md").read_text(encoding="utf-8")
    assert [key for key in CHECKS if f"`{key}`" not in text] == []


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.md"))]


def commands(page: Path) -> list[str]:
    """Return each command line of ours in a page's shell blocks."""
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if re.match(r"(\S*/)?comfy-env ", line)]


@pytest.mark.parametrize(("page", "line"), [(page.name, line) for page in PAGES for line in commands(page)])
def test_a_command_in_the_documents_is_one(page: str, line: str):
    words = shlex.split(line, comments=True)[1:]
    assert callable(build_parser().parse_args([word for word in words if word != "…"]).act)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_in_the_documents_leads_somewhere(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", text) if link and "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
