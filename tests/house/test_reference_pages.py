"""The generated pages of the reference are what the code says now."""

from __future__ import annotations

from types import ModuleType

import pytest

from comfy_env.settings import Settings

from .tree import ROOT, script


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return script("docs/generate.py")


@pytest.mark.parametrize("name", ["settings.md", "cli.md", "hooks.md", pytest.param("errors.md", marks=pytest.mark.slow)])
def test_a_committed_page_is_what_the_code_gives(generate: ModuleType, name: str):
    committed = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert committed == generate.PAGES[name](), "run `make docs` and commit the page"


def test_a_page_that_differs_is_reported(generate: ModuleType, tmp_path):
    for name, write in generate.PAGES.items():
        (tmp_path / name).write_text(write(), encoding="utf-8")
    (tmp_path / "cli.md").write_text("old", encoding="utf-8")
    assert generate.stale(tmp_path) == ["cli.md"]


def test_the_settings_page_names_every_variable(generate: ModuleType):
    page = generate.settings()
    assert all(f"`{spec.metadata['variable']}`" in page for spec in Settings.__dataclass_fields__.values())


def test_every_link_between_pages_leads_somewhere():
    import re

    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken, "\n".join(broken)
