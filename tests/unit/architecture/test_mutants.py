"""The report of the mutation tests, on a tree as mutmut leaves it (bench/mutants.py)."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.paths import ROOT

SCRIPT = ROOT / "bench" / "mutants.py"
MUTATED = """
def x_check__mutmut_orig(size):
    if size > 3:
        raise ValueError(f"{size} is too large", "SIZE")

def x_check__mutmut_1(size):
    if size >= 3:
        raise ValueError(f"{size} is too large", "SIZE")

def x_check__mutmut_2(size):
    if size > 3:
        raise ValueError(None, "SIZE")

def x_check__mutmut_3(size):
    if size > 3:
        raise ValueError(f"{size} is too large", "XXSIZEXX")

def x_check__mutmut_4(size):
    if size > 4:
        raise ValueError(f"{size} is too large", "SIZE")
"""
LARGE = "ise ValueError(f'{size} is too large'"


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants_report", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants_report"] = module
    spec.loader.exec_module(module)
    return module


def result_of(mutants: ModuleType, directory: Path, *exit_codes: int | None) -> Any:
    """The result of the only file of a target, whose mutants ended with these exit codes."""
    results = {f"veen.sizes.x_check__mutmut_{n}": code for n, code in enumerate(exit_codes, 1)}
    mutated = directory / "mutants" / "veen" / "sizes.py"
    mutated.parent.mkdir(parents=True)
    mutated.write_text(MUTATED)
    mutated.with_name("sizes.py.meta").write_text(json.dumps({"exit_code_by_key": results}))
    target = mutants.Target(str(directory), files=["veen/sizes.py"], tests=[])
    (result,) = mutants.results_of(list(mutants.read_mutants(target)))
    return result


def test_counts_message_texts_apart(mutants: ModuleType, tmp_path: Path) -> None:
    result = result_of(mutants, tmp_path, 1, 0, 1, 36)
    assert (result.mutants, result.killed, result.texts, result.survivors) == (4, 3, 1, [])
    assert result.percent == 100
    _, row = mutants.report([result]).splitlines()
    assert row.split() == ["veen/sizes.py", "4", "3", "1", "0", "100.0"]


def test_lists_every_other_survivor(mutants: ModuleType, tmp_path: Path) -> None:
    result = result_of(mutants, tmp_path, 0, 0, 0, 33)
    assert result.percent == 0
    _, _, *survivors = mutants.report([result]).splitlines()
    assert survivors == [
        "veen.sizes.x_check__mutmut_1: if size > 3:  ->  if size >= 3:",
        f"veen.sizes.x_check__mutmut_3: {LARGE}, 'SIZE')  ->  {LARGE}, 'XXSIZEXX')",
        "veen.sizes.x_check__mutmut_4 (no test): if size > 3:  ->  if size > 4:",
    ]


def test_leaves_out_what_has_not_run(mutants: ModuleType, tmp_path: Path) -> None:
    assert result_of(mutants, tmp_path, 1, None, None, None).mutants == 1


def test_does_not_take_tests_that_did_not_run_for_a_kill(
    mutants: ModuleType, tmp_path: Path
) -> None:
    result = result_of(mutants, tmp_path, 255, 1, 1, 1)
    assert [mutant.reason for mutant in result.survivors] == [" (the tests did not run)"]
