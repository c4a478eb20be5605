"""The report of the mutation tests, on a tree as mutmut leaves it (bench/mutants.py)."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

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
LARGE = "ValueError(f'{size} is too large'"


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants_report", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants_report"] = module
    spec.loader.exec_module(module)
    return module


def a_tree(folder: Path, *exit_codes: int | None) -> Path:
    results = {f"veen.sizes.x_check__mutmut_{n}": code for n, code in enumerate(exit_codes, 1)}
    (folder / "sizes.py").write_text(MUTATED)
    (folder / "sizes.py.meta").write_text(json.dumps({"exit_code_by_key": results}))
    return folder


def test_counts_message_texts_apart(mutants: ModuleType, tmp_path: Path) -> None:
    text, is_enough = mutants.report(mutants.read_mutants(a_tree(tmp_path, 1, 0, 1, 36)))
    assert text == (
        "4 mutants, 3 killed, 1 survived as message texts, 0 survived otherwise: "
        "100.0 % killed without message texts"
    )
    assert is_enough


def test_lists_every_other_survivor(mutants: ModuleType, tmp_path: Path) -> None:
    text, is_enough = mutants.report(mutants.read_mutants(a_tree(tmp_path, 0, 0, 0, 33)))
    _, *survivors = text.splitlines()
    assert survivors == [
        "veen.sizes.x_check__mutmut_1: if size > 3:  ->  if size >= 3:",
        f"veen.sizes.x_check__mutmut_3: raise {LARGE}, 'SIZE')  ->  raise {LARGE}, 'XXSIZEXX')",
        "veen.sizes.x_check__mutmut_4 (no test): if size > 3:  ->  if size > 4:",
    ]
    assert not is_enough


def test_leaves_out_what_has_not_run(mutants: ModuleType, tmp_path: Path) -> None:
    text, _ = mutants.report(mutants.read_mutants(a_tree(tmp_path, 1, None, None, None)))
    assert text.startswith("1 mutants, 1 killed")
