"""The documentation site builds strictly, renders its diagrams and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import mermaidx  # type: ignore[import-untyped]
import pytest

from support.paths import ROOT

AUDIENCES = ("operator", "producer", "auditor", "developer")
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a browser loads by itself; a link that a person follows may lead anywhere.
_LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", site],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_audience_has_a_page_that_the_landing_page_links(site: Path) -> None:
    landing = (site / "index.html").read_text()
    for audience in AUDIENCES:
        assert (site / audience / "index.html").exists()
        assert f'href="{audience}/"' in landing


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = {
        target
        for page in site.rglob("*.html")
        for pair in _LOADED.findall(page.read_text())
        for target in pair
        if target.startswith(("http:", "https:", "//"))
    }
    assert loaded == set()
    assert (site / "assets" / "mermaid.js").stat().st_size > 1_000_000
    assert 'src="assets/mermaid.js"' in (site / "index.html").read_text()


def test_search_finds_a_word_of_a_manual(site: Path) -> None:
    assert "inclusion proof" in (site / "search" / "search_index.json").read_text()


def test_broken_links_and_anchors_fail_the_build(tmp_path: Path) -> None:
    for name in ("docs", "docker"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml", "mkdocs_hooks.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "docs" / "index.md").open("a") as page:
        page.write("\n[a](nothing.md) [b](hub.md#no-anchor) [c](../outside.md)\n")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    for target in ("nothing.md", "hub.md#no-anchor", "../outside.md"):
        assert f"'{target}'" in done.stderr


def test_make_docs_is_strict() -> None:
    """With --quiet MkDocs does not count warnings, and --strict then lets everything pass."""
    recipe = (ROOT / "Makefile").read_text().partition("\ndocs:")[2].partition("\n\n")[0]
    assert "mkdocs build --strict" in recipe
    assert "--quiet" not in recipe


def diagrams() -> list[tuple[str, str]]:
    return [
        (page.name, text)
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for text in _DIAGRAM.findall(page.read_text())
    ]


def test_every_diagram_is_mermaid() -> None:
    assert len(diagrams()) >= 4
    for name, text in diagrams():
        assert "Syntax error" not in mermaidx.render(text).svg(), name


def test_the_check_of_diagrams_finds() -> None:
    with pytest.raises(Exception, match=r"(?i)error"):  # the package names no type of its own
        mermaidx.render("sequenceDiagram\n  A->>B: one; two three\n").svg()
