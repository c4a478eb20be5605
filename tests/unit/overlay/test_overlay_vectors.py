"""Encodings and hashes against vectors that another program made."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from support.paths import VECTORS
from support.vectors import load_vectors
from veen.digest import h
from veen.overlay import snapshot
from veen.overlay.fold import FoldSummary, Node, Scope, SignedRoot, SummaryAnchor
from veen.overlay.overlay import Event, fold_events
from veen.overlay.snapshot import OVERLAYS, Prefix, StateCheckpoint, overlay_named, state_hash

CASES = load_vectors("overlay.json")
LABEL, ROOT = (bytes.fromhex(CASES[name]) for name in ("label", "mmr_root"))


def events_of(case: dict[str, Any]) -> list[Event]:
    return [
        Event(
            stream_seq=seq, hub_ts=hub_ts, client_id=bytes.fromhex(client_id),
            schema=bytes.fromhex(schema), body=bytes.fromhex(body),
        )
        for seq, hub_ts, client_id, schema, body in case["events"]
    ]  # fmt: skip


def test_the_vectors_are_what_the_script_makes() -> None:
    script = VECTORS / "make_overlay.py"
    run = subprocess.run(
        [sys.executable, "-B", str(script), "--check"], capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr.decode()


@pytest.mark.parametrize("case", CASES["folds"], ids=lambda c: f"{c['overlay']} {len(c['events'])}")
def test_a_fold_has_the_bytes_of_the_vectors(case: dict[str, Any]) -> None:
    overlay = overlay_named(case["overlay"])
    folded = fold_events(overlay, events_of(case))
    assert overlay.encode(folded).hex() == case["folded"]
    assert folded.state.encode().hex() == case["state"]
    assert state_hash(overlay.name, folded.state.encode()).hex() == case["state_hash"]
    assert overlay.schema_set().hex() == case["schema_set"]
    assert overlay.decode(bytes.fromhex(case["folded"])) == folded


def test_there_are_vectors_of_every_overlay() -> None:
    assert {case["overlay"] for case in CASES["folds"]} == {item.name for item in OVERLAYS}


def test_a_summary_has_the_bytes_of_the_vectors() -> None:
    case = CASES["summary"]
    anchor = SummaryAnchor(kind=1, upto_seq=8, object_hash=h(b"receipt of the vectors"))
    summary = FoldSummary.of(
        Scope(overlay_named("wallet.ledger"), LABEL),
        Node(2, 1, 1),
        SignedRoot(ROOT, anchor),
        bytes.fromhex(case["payload"]),
    )
    assert summary.encode().hex() == case["summary"]
    assert summary.digest.hex() == case["digest"]


def test_a_snapshot_has_the_bytes_of_the_vectors() -> None:
    case, overlay = CASES["snapshot"], overlay_named("counter.map")
    prefix = Prefix(
        overlay=overlay, label=LABEL, upto_seq=8, mmr_root=ROOT, state=overlay.empty().state
    )
    assert prefix.checkpoint(LABEL).encode().hex() == case["body"]
    assert StateCheckpoint.decode(bytes.fromhex(case["body"])) == prefix.checkpoint(LABEL)
    assert snapshot.SCHEMA.hex() == case["schema"]
