"""Every file and function on the paths of an event and of a bundle exists
(docs/architecture.md).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from support.paths import ROOT

PAGE = ROOT / "docs" / "architecture.md"
HEADING = "## The path of an event\n"
BUNDLE = "## The path of one bundle\n"
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"[\w/]+\.py\b")
_QUOTED = re.compile(r"`([^`]+)`")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef


def section(heading: str = HEADING) -> str:
    _, _, after = PAGE.read_text().partition(heading)
    return after.partition("\n## ")[0]


def bundle_path() -> str:
    """The section about one bundle, up to its table of modules."""
    return section(BUNDLE).partition("\n| modules of ")[0]


def table_cells(text: str) -> list[str]:
    """The last column of the table, without its head."""
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    return [row.split(" | ")[-1] for row in rows[1:]]


def defined(source: str) -> set[str]:
    """Functions and classes of a module, and methods as ``Class.method``; nothing nested."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if not isinstance(node, Definition):
            continue
        names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{item.name}" for item in node.body if isinstance(item, Function)
            }
    return names


def missing(text: str) -> Iterator[str]:
    """What the text names and the tree does not have, as ``file`` or ``file: name``."""
    for diagram in _DIAGRAM.findall(text):
        yield from (name for name in _FILE.findall(diagram) if not (ROOT / name).is_file())
    for cell in table_cells(text):
        yield from missing_in_cell(cell)


def missing_in_cell(cell: str) -> Iterator[str]:
    file, names = None, set[str]()
    for quoted in _QUOTED.findall(cell):
        if quoted.endswith(".py"):
            file = quoted
            names = defined((ROOT / file).read_text()) if (ROOT / file).is_file() else set()
            if not (ROOT / file).is_file():
                yield file
        elif quoted not in names:
            yield f"{file}: {quoted}"


def test_every_file_and_function_exists() -> None:
    assert list(missing(section())) == []


def test_every_file_and_function_on_the_path_of_a_bundle_exists() -> None:
    path = bundle_path()
    assert "ImportLedger.conclude" in path
    assert list(missing(path)) == []


def test_every_step_names_functions() -> None:
    cells = table_cells(section())
    assert len(cells) == 14
    for cell in cells:
        quoted = _QUOTED.findall(cell)
        assert quoted[0].endswith(".py")
        assert not quoted[-1].endswith(".py")


def test_the_diagram_has_every_step() -> None:
    (diagram,) = _DIAGRAM.findall(section())
    steps = [int(number) for number in re.findall(r'\["(\d+) ', diagram)]
    assert steps == list(range(1, 15))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("`audit_log`", "`audit_everything`", "veen/audit/engine.py: audit_everything"),
        ("`Outbox.add`", "`Outbox.insert`", "veen/client/outbox.py: Outbox.insert"),
        ("`Committer.commit`", "`commit`", "hub/sequencer/committer.py: commit"),
        ("`prefilter`", "`_HEAD`", "hub/admission.py: _HEAD"),
        ("`bridge/bundle.py`", "`bridge/parcel.py`", "bridge/parcel.py"),
        (
            "export: bridge/exporter/run.py",
            "export: bridge/exporter/go.py",
            "bridge/exporter/go.py",
        ),
    ],
)
def test_a_name_that_does_not_exist_is_reported(old: str, new: str, message: str) -> None:
    assert old in section()
    assert message in list(missing(section().replace(old, new)))
