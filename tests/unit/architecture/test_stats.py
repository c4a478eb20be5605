"""The measurement of the tree, on trees that are made up (bench/stats.py)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.paths import ROOT

SCRIPT = ROOT / "bench" / "stats.py"

FIRST = """
class State:
    pass

def lookup(items):
    for one in items:
        found = one
    return found
"""
SECOND = """
from veen.first import State as First
import veen.first

class State(First):
    class State:
        pass

class Entry:
    def read(self, found):
        return [entry for entry in found]
"""
THIRD = "from veen import first, second\nimport json\n" + "\n" * 249


@pytest.fixture(scope="module")
def stats() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tree_stats", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tree_stats"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "veen/__init__.py": "",
        "veen/first.py": FIRST,
        "veen/second.py": SECOND,
        "hub/third.py": THIRD,
        "tests/conftest.py": "a = 1\n",
        "tests/test_it.py": "b = 1\n" * 3,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_measures_a_tree(stats: ModuleType, tree: Path) -> None:
    result = stats.measure(tree)
    assert (result.files, result.lines) == (3, 8 + 11 + 251)
    assert (result.mean_file, result.median_file, result.long_files) == (90, 11, 33.33)
    assert (result.imports_median, result.imports_p90) == (1, 2)
    assert result.shared_class_names == 66.67
    assert result.most_shared_class == "`State` x2"
    assert result.functions_with_found == 50
    assert result.loops_for_one == 50
    assert result.helper_test_lines == 25


def test_prints_every_row_with_every_project(stats: ModuleType, tree: Path) -> None:
    lines = stats.table(stats.measure(tree)).splitlines()
    assert len(lines) == 2 + len(stats.ANCHOR_ROWS)
    assert {line.count("|") for line in lines} == {len(stats.ANCHORS) + 3}
    assert lines[2].endswith("| 78 / 14k | 3 / 0k |")


def test_prints_json(tree: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--root", str(tree), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["files"] == 3


@pytest.mark.parametrize(("share", "text"), [(0, "0"), (0.2, "0.2 %"), (1.4, "1 %"), (29, "29 %")])
def test_writes_a_share_as_the_other_columns_do(stats: ModuleType, share: float, text: str) -> None:
    assert stats.percent(share) == text


def test_takes_the_90th_percentile(stats: ModuleType) -> None:
    assert stats.percentile(list(range(1, 11)), 90) == 9
    assert stats.percentile([7], 90) == 7
