"""A summary names what it is of, and shows damage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from veen.checkpoint import Checkpoint
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.overlay.fold import AnchorKind, FoldSummary, Node, Scope, SignedRoot, SummaryAnchor
from veen.overlay.snapshot import overlay_named
from veen.receipt import Receipt

LABEL, ROOT = h(b"a label"), h(b"a root")
NODE = Node(4, 1, 2)
SCOPE = Scope(overlay_named("orset"), LABEL)
RECEIPT = Receipt(label=LABEL, stream_seq=24, leaf_hash=h(b"leaf"), mmr_root=ROOT, hub_ts=5)


@pytest.fixture
def summary() -> FoldSummary:
    payload = SCOPE.overlay.encode(SCOPE.overlay.empty())
    return FoldSummary.of(SCOPE, NODE, SignedRoot.of_receipt(RECEIPT), payload)


def test_a_summary_of_the_node_verifies_after_a_journey(summary: FoldSummary) -> None:
    FoldSummary.decode(summary.encode()).verify(SCOPE, NODE, ROOT)
    assert (summary.from_seq, summary.to_seq) == (17, 24)
    assert summary.anchor.object_hash == h(RECEIPT.encode())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"overlay": "lww.map"}, "overlay"),
        ({"schema_set": h(b"other")}, "schema_set"),
        ({"label": h(b"other")}, "label"),
        ({"block": 8}, "block"),
        ({"from_seq": 16}, "from_seq"),
        ({"to_seq": 25}, "to_seq"),
        ({"mmr_root": h(b"other")}, "mmr_root"),
        ({"anchor": SummaryAnchor(kind=1, upto_seq=25, object_hash=ROOT)}, "anchor"),
    ],
)
def test_a_summary_of_something_else_is_refused_by_name(
    summary: FoldSummary, change: dict[str, Any], named: str
) -> None:
    changed = replace(summary, **change)
    sealed = replace(changed, digest=changed.expected_digest())
    with pytest.raises(Untrusted, match=f"has another {named}$"):
        sealed.verify(SCOPE, NODE, ROOT)


def test_the_root_that_counts_is_the_one_of_the_log(summary: FoldSummary) -> None:
    with pytest.raises(Untrusted, match="mmr_root"):
        summary.verify(SCOPE, NODE, h(b"the root of the log"))


def test_every_flipped_bit_is_noticed(summary: FoldSummary) -> None:
    raw = summary.encode()
    for at in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises((Malformed, Untrusted)):
            FoldSummary.decode(bytes(changed)).verify(SCOPE, NODE, ROOT)


def test_the_schemas_of_an_overlay_are_hashed_in_order() -> None:
    (schema,) = overlay_named("orset").schemas
    assert SCOPE.overlay.schema_set() == h(b"veen/overlay-schemas\x00" + schema)


def test_a_checkpoint_gives_a_root_as_well_as_a_receipt() -> None:
    checkpoint = Checkpoint(label_prev=LABEL, label_curr=LABEL, upto_seq=24, mmr_root=ROOT, epoch=0)
    root = SignedRoot.of_checkpoint(checkpoint)
    assert root.mmr_root == ROOT
    assert root.anchor == SummaryAnchor(
        kind=AnchorKind.CHECKPOINT.value, upto_seq=24, object_hash=h(checkpoint.encode())
    )


@pytest.mark.parametrize("change", [{"from_seq": 0}, {"from_seq": 25}, {"block": 0}])
def test_a_summary_of_no_places_has_no_encoding(
    summary: FoldSummary, change: dict[str, Any]
) -> None:
    with pytest.raises(Malformed):
        replace(summary, **change).encode()


def test_an_anchor_of_an_unknown_kind_has_no_encoding() -> None:
    with pytest.raises(Malformed):
        SummaryAnchor(kind=3, upto_seq=1, object_hash=ROOT).encode()
