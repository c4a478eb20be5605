"""What the documents name is there: configuration keys, commands, files, functions and tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.main import app
from hub import policy, settings
from hub.api.openapi import ROUTES
from support.paths import ROOT
from veen.limits import Limits

EXAMPLE = ROOT / "docs" / "hub.example.toml"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/adr/*.md"),
        *ROOT.glob("docker/*.md"),
    ]
)
KEYS = sorted(
    {
        *settings._PLAIN,
        *settings._TABLES,
        *policy._KEYS,
        *(field.name for field in fields(Limits)),
        *("name", "epoch_sec", "pad_block", "max_msg_bytes", "streams", "keep_days"),
    }
)
_CODE = re.compile(r"`([^`\n]+)`")
_SHELL = re.compile(r"^```(?:sh|shell)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:\.venv/bin/)?veen(?= [a-z])(.*)")
_REPOSITORY_FILES = {"Makefile", "pyproject.toml", "requirements.lock"}


def page(name: str) -> str:
    return (ROOT / name).read_text()


def test_the_example_configuration_loads_with_the_limits_it_calls_defaults() -> None:
    document = settings.load(EXAMPLE)
    assert document.limits == Limits()
    assert {stream.name for stream in document.streams} >= {"record/line-1"}
    assert document.policy.principals
    assert document.retention


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_in_the_example_and_in_the_manual(key: str) -> None:
    assert re.search(rf"\b{key}\b", EXAMPLE.read_text())
    assert re.search(rf"`(\[\[?)?{key}\b", page("docs/hub.md"))


@pytest.mark.parametrize("role", [item.title for item in policy.Role])
def test_every_role_is_in_the_manual(role: str) -> None:
    assert f"| `{role}` |" in page("docs/hub.md")


def test_every_metric_is_in_the_manual() -> None:
    source = (ROOT / "hub" / "metrics.py").read_text()
    names = set(re.findall(r'"(veen_[a-z_]+)"', source))
    described = set(re.findall(r"`(veen_[a-z_]+)`", page("docs/hub.md")))
    assert names == described


def test_every_route_is_in_the_manual() -> None:
    rows = {f"| {item.method.upper()} | `{item.path}` |" for item in ROUTES}
    manual = page("docs/hub.md")
    assert [row for row in sorted(rows) if row not in manual] == []


def commands(text: str) -> Iterator[str]:
    """The arguments of ``veen`` in code: in backticks, on an indented line, or in a shell block."""
    fenced = {line for block in _SHELL.findall(text) for line in block.splitlines()}
    for line in text.splitlines():
        is_code = line.startswith("    ") or line in fenced
        spans = [line.strip().removeprefix("$ ")] if is_code else []
        for span in (*spans, *_CODE.findall(line)):
            match = _COMMAND.fullmatch(span.strip().removeprefix("# "))
            if match:
                yield match[1].strip()


def unknown(command: str) -> str | None:
    """The first word that the program does not know."""
    at: Any = typer.main.get_command(app)
    for word in command.split():
        if hasattr(at, "commands"):
            if word not in at.commands:
                return word
            at = at.commands[word]
        elif word.startswith("--"):
            known = {name for param in at.params for name in (*param.opts, *param.secondary_opts)}
            if word not in known:
                return word
    return None


@pytest.mark.parametrize("path", PAGES, ids=lambda item: item.name)
def test_every_command_exists(path: Path) -> None:
    result = list(commands(path.read_text()))
    assert [(item, unknown(item)) for item in result if unknown(item)] == []


def test_the_check_of_commands_finds() -> None:
    text = "`veen hub start`\n\n    $ veen hub strat --data-dir x\n    veen hub stop --nope\n"
    text += "```sh\nveen hub kye\n```\nveen hub prose\n"
    assert [unknown(command) for command in commands(text)] == [None, "strat", "--nope", "kye"]


def named(text: str) -> Iterator[str]:
    """Paths of this repository in backticks, with the name inside the file if there is one."""
    folders = {
        path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")
    }
    for span in _CODE.findall(text):
        head = span.partition("::")[0]
        is_ours = head in _REPOSITORY_FILES or head.partition("/")[0] in folders
        if (is_ours and "/" in head and not re.search(r"[<*…\s]", span)) or head.endswith(".py"):
            yield span


def is_there(span: str) -> bool:
    head, _, inside = span.partition("::")
    if "/" not in head and head not in _REPOSITORY_FILES:
        return any(ROOT.glob(f"*/{head}")) or any(ROOT.glob(f"*/*/{head}"))
    path = ROOT / head
    return path.exists() and (not inside or inside in names_in(path))


def names_in(path: Path) -> set[str]:
    """Functions, classes, their methods and what is assigned at the top of a module."""
    result: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            result.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            result |= {f"{node.name}.{item.name}" for item in inner}
        if isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            result |= {target.id for target in targets if isinstance(target, ast.Name)}
    return result


@pytest.mark.parametrize("path", PAGES, ids=lambda item: item.name)
def test_every_file_and_name_exists(path: Path) -> None:
    assert [item for item in named(path.read_text()) if not is_there(item)] == []


def test_the_check_of_files_finds() -> None:
    text = "`veen/mmr.py::Peaks`, `veen/nothing.py`, `veen/mmr.py::Peeks`, `log/x`, `hub/`, `no.py`"
    assert [is_there(item) for item in named(text)] == [True, False, False, True, False]


def anchors(path: Path) -> set[str]:
    """Anchors of the headings of a page, as MkDocs and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings]
    return {re.sub(r"[\s-]+", "-", text) for text in words}


def broken_links(path: Path) -> list[str]:
    """Relative links of a page whose file, or heading in it, does not exist."""
    broken = []
    for link in re.findall(r"\]\(([^):\s]+)\)", path.read_text()):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", PAGES, ids=lambda item: item.name)
def test_every_link_and_anchor_exists(path: Path) -> None:
    assert broken_links(path) == []


def test_the_check_of_links_finds(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](#one-two) [b](#three) [c](page.md#one-two) [d](no.md)\n")
    assert broken_links(page) == ["#three", "no.md"]
