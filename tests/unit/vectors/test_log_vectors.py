"""The small log of veen.json, entry by entry and as a whole, against the library."""

from __future__ import annotations

import json
import subprocess
import sys
from operator import itemgetter
from typing import Any

import pytest

from support.paths import VECTORS
from veen import invariants
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Malformed
from veen.hub_identity import new_identity
from veen.label import DEFAULT_PROFILE, EpochLabels, hub_id, routing_key, stream_id
from veen.limits import Limits
from veen.log import chunk
from veen.log.chunk import ChunkSummary, PeakSnapshot
from veen.log.entry import Entry, open_entry, read_entry
from veen.mmr import EMPTY
from veen.msg import Msg
from veen.receipt import Receipt, issue

LOG = json.loads((VECTORS / "veen.json").read_text("utf-8"))["log"]
HUB = SigningKey(bytes.fromhex(LOG["hub_seed"]))
LABEL = bytes.fromhex(LOG["label"])
LABELS = EpochLabels(routing_key(hub_id(HUB.public)), stream_id(LOG["stream"]), DEFAULT_PROFILE)
RAW = b"".join(bytes.fromhex(entry["framed"]) for entry in LOG["entries"])
ENTRIES = pytest.mark.parametrize("case", LOG["entries"], ids=itemgetter("name"))


def test_committed_vectors_are_what_the_script_makes() -> None:
    script = [sys.executable, "-B", str(VECTORS / "make_veen.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_label_is_that_of_hub_and_stream() -> None:
    assert (HUB.public.hex(), LABELS.at(0).hex()) == (LOG["hub_pk"], LOG["label"])


@ENTRIES
def test_receipt_is_signed_as_in_the_vector(case: dict[str, Any], revived: Any) -> None:
    receipt = Receipt(
        label=LABEL,
        stream_seq=case["stream_seq"],
        leaf_hash=revived(case["leaf_hash"]),
        mmr_root=revived(case["mmr_root"]),
        hub_ts=case["hub_ts"],
    )
    assert receipt.signed(HUB).encode().hex() == case["receipt"]


@ENTRIES
def test_receipt_is_issued_as_in_the_vector(case: dict[str, Any], revived: Any) -> None:
    issued = issue(
        HUB,
        label=LABEL,
        stream_seq=case["stream_seq"],
        leaf=revived(case["leaf_hash"]),
        root=revived(case["mmr_root"]),
        hub_ts=case["hub_ts"],
    )
    assert issued.hex() == case["receipt"]


@ENTRIES
def test_entry_encodes_to_its_frame(case: dict[str, Any], revived: Any) -> None:
    entry = Entry(revived(case["msg"]), revived(case["receipt"]))
    assert entry.entry_hash().hex() == case["entry_hash"]
    assert entry.encode(LABEL, case["stream_seq"]).hex() == case["framed"]


@ENTRIES
def test_entry_reads_back_from_its_frame(case: dict[str, Any], revived: Any) -> None:
    entry = open_entry(*read_entry(revived(case["framed"]), 0, Limits()))
    assert entry.msg == Msg.decode(revived(case["msg"]))
    assert entry.receipt == Receipt.decode(revived(case["receipt"]))


@ENTRIES
def test_entry_cut_short_anywhere_is_refused(case: dict[str, Any], revived: Any) -> None:
    raw = revived(case["framed"])
    for size in range(len(raw)):
        with pytest.raises(Malformed):
            read_entry(raw[:size], 0, Limits())


@ENTRIES
def test_entry_with_any_byte_changed_is_refused(case: dict[str, Any], revived: Any) -> None:
    raw = bytearray(revived(case["framed"]))
    for at in range(len(raw)):
        raw[at] ^= 1
        with pytest.raises(Malformed):
            open_entry(*read_entry(bytes(raw), 0, Limits()))
        raw[at] ^= 1


def test_log_upholds_the_invariants() -> None:
    rules = invariants.Rules(
        hub=new_identity(HUB.public, 0, "none"),
        profiles={DEFAULT_PROFILE.profile_id(): DEFAULT_PROFILE},
        limits=Limits(),
        stream=LABELS,
    )
    after = invariants.After(EMPTY, invariants.NEW_CLIENT, None)
    for _, _, entry in chunk.read_entries(RAW, Limits()):
        before = invariants.Before(peaks=after.peaks, client=after.client, grant=None)
        after = invariants.verify_pair(entry.msg(), entry.receipt(), before, rules)
    assert [peak.hex() for peak in after.peaks.hashes] == LOG["peaks"]


def test_chunk_summary() -> None:
    tally = chunk.ChunkTally.starting_at(1)
    for _, header, _ in chunk.read_entries(RAW, Limits()):
        tally = tally.plus(header.whole_size, header.entry_hash)
    summary = tally.summary(LABEL, bytes.fromhex(LOG["entries"][-1]["mmr_root"]))
    assert (summary.total_bytes, summary.entry_hashes_root.hex()) == (
        LOG["total_bytes"],
        LOG["entry_hashes_root"],
    )
    assert summary.encode().hex() == LOG["chunk_summary"]
    assert ChunkSummary.decode(bytes.fromhex(LOG["chunk_summary"])) == summary


def test_peak_snapshot(revived: Any) -> None:
    snapshot = PeakSnapshot(label=LABEL, upto_seq=3, peaks=revived(LOG["peaks"]))
    assert snapshot.encode().hex() == LOG["peak_snapshot"]
    assert PeakSnapshot.decode(revived(LOG["peak_snapshot"])) == snapshot


def test_checkpoint_over_the_log(revived: Any) -> None:
    root = revived(LOG["entries"][-1]["mmr_root"])
    checkpoint = Checkpoint(
        label_prev=LABEL, label_curr=LABEL, upto_seq=3, mmr_root=root, epoch=0
    ).signed(HUB)
    assert checkpoint.encode().hex() == LOG["checkpoint"]
    checkpoint.verify_labels(LABELS)
    checkpoint.verify_root(3, PeakSnapshot.decode(revived(LOG["peak_snapshot"])).to_peaks().root())


def test_witness_of_the_checkpoint(revived: Any) -> None:
    witnessed = Checkpoint.decode(revived(LOG["checkpoint"])).witnessed(
        SigningKey(revived(LOG["witness_seed"]))
    )
    assert witnessed.witness_sigs == (revived(LOG["witness_sig"]),)


def test_entry_hash_has_no_separator_after_its_tag(revived: Any) -> None:
    first = LOG["entries"][0]
    joined = b"veen/entry" + revived(first["msg"]) + revived(first["receipt"])
    assert h(joined).hex() == first["entry_hash"]
