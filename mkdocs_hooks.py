"""MkDocs hooks: pages that live outside of docs/, and a local copy of mermaid.js."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent
# Page of the site -> file of the repository. GitHub reads the files where they are.
OUTSIDE: Final = {
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "docker.md": "docker/README.md",
}
_LINK: Final = re.compile(r"\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(pages: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/, and mermaid.js as the package mermaidx carries it."""
    for name, source in OUTSIDE.items():
        text = _relink((ROOT / source).read_text(), (ROOT / source).parent)
        pages.append(File.generated(config, name, content=text))
    script = files("mermaidx").joinpath("assets/mermaid.js").read_bytes()
    pages.append(File.generated(config, "assets/mermaid.js", content=script))
    return pages


def on_page_markdown(text: str, *, page: Page, **_context: object) -> str:
    """Lead links from docs/ to files outside of it to their pages of the site."""
    if page.file.src_uri in OUTSIDE:
        return text
    return _relink(text, (ROOT / "docs" / page.file.src_uri).parent)


def _relink(text: str, folder: Path) -> str:
    """The text with relative links that are true for the page's place in the site."""
    places = {(ROOT / source).resolve(): name for name, source in OUTSIDE.items()}
    docs = ROOT / "docs"
    depth = len(folder.relative_to(docs).parts) if folder.is_relative_to(docs) else 0

    def target(match: re.Match[str]) -> str:
        path = (folder / match["path"]).resolve()
        anchor = match["anchor"] or ""
        if path in places:
            return f"]({'../' * depth}{places[path]}{anchor})"
        if not folder.is_relative_to(docs) and path.is_relative_to(docs):
            return f"]({path.relative_to(docs)}{anchor})"
        return match[0]

    return _LINK.sub(target, text)
