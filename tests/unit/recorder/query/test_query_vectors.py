"""Queries and results against vectors that another program made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from recorder.query.descriptor import EvidencePolicy, normalise
from recorder.query.digest import rows_hash
from recorder.query.evidence import EvidenceSummary, evidence_hash, is_sampled
from recorder.query.execute import run
from support.paths import VECTORS
from support.vectors import load_vectors
from veen.wire import canonical_json

CASES = load_vectors("query.json")


def test_committed_vectors_are_what_the_script_makes() -> None:
    script = [sys.executable, "-B", str(VECTORS / "make_query.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", CASES["descriptors"], ids=lambda case: case["sent"]["query_id"])
def test_descriptor(case: dict[str, Any]) -> None:
    descriptor = normalise(case["sent"], query_id_if_missing="-")
    assert descriptor.encode().decode() == case["normalised"]
    assert descriptor.digest() == case["digest"]


@pytest.mark.parametrize("number", range(len(CASES["answers"])))
def test_answer(number: int, entries_of: Callable[..., Any]) -> None:
    case = CASES["answers"][number]
    entries = entries_of(SimpleNamespace(**event) for event in CASES["events"])
    result = run(normalise(case["query"], query_id_if_missing="-"), entries, bytes(32))
    assert canonical_json.encode(list(result.rows)).decode() == case["rows"]
    hashed = rows_hash(result.rows)
    assert (hashed.rows_hash, hashed.chain) == (case["rows_hash"], case["rows_chain"])


@pytest.mark.parametrize("case", CASES["summaries"])
def test_evidence_summary(case: dict[str, Any], a_descriptor: Callable[..., Any]) -> None:
    lines = [EvidenceSummary(f"rcpt-{i}", f"{i:064x}", "ef" * 32) for i in range(case["count"])]
    asked = a_descriptor(evidence=case["policy"])
    assert evidence_hash(asked, "r-1", lines) == case["hash"]


@pytest.mark.parametrize("case", CASES["sampling"]["picks"], ids=lambda case: case["rate"])
def test_sampling(case: dict[str, Any]) -> None:
    policy, root = (
        EvidencePolicy("spot", case["rate"]),
        bytes.fromhex(CASES["sampling"]["log_root"]),
    )
    picks = [i for i in range(200) if is_sampled(policy, "q-1", root, i)]
    assert picks == case["rows"]
