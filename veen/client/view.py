"""What a client knows of one label: a verified range, its own place in it, and receipts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from veen.errors import Untrusted
from veen.invariants import NEW_CLIENT, ClientCursor
from veen.mmr import EMPTY, Peaks
from veen.range_proof import RangeProof
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelView:
    """``head`` is the receipt at peaks.size. ``unlinked`` is the newest receipt of our own beyond
    it, where the right to read was missing to prove that the two are of one history.
    """

    hub_id: bytes
    stream: str
    epoch: int
    peaks: Peaks = EMPTY
    head: Receipt | None = None
    unlinked: Receipt | None = None
    cursors: Mapping[bytes, ClientCursor] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        """The largest stream_seq that the hub has signed to us: what prev_ack may name."""
        return max(self.peaks.size, self.unlinked.stream_seq if self.unlinked else 0)

    def cursor(self, client_id: bytes) -> ClientCursor:
        return self.cursors.get(client_id, NEW_CLIENT)

    def verify(self) -> None:
        """Refuse a view that its own receipt does not bear out."""
        if self.peaks.size == 0 and self.head is None:
            return
        if self.head is None or self.head.stream_seq != self.peaks.size:
            raise Untrusted("the view has no receipt for its size")
        if self.head.mmr_root != self.peaks.root():
            raise Untrusted(f"the peaks are not those of the root signed at {self.peaks.size}")

    def appended(self, receipt: Receipt) -> LabelView:
        """The view after the next entry; I3 and I12 hold for it or it is Untrusted."""
        if receipt.stream_seq != self.peaks.size + 1:
            raise Untrusted(f"receipt {receipt.stream_seq} does not follow {self.peaks.size}")
        return self._moved(self.peaks.append(receipt.leaf_hash), receipt)

    def linked(self, proof: RangeProof, receipt: Receipt) -> LabelView:
        """The view after a later entry; the proof leads from our peaks to just before it."""
        before = receipt.stream_seq - 1
        if (proof.from_seq, proof.to_seq, proof.size) != (
            self.peaks.size + 1, self.peaks.size, before,
        ):  # fmt: skip
            raise Untrusted(f"not a proof from {self.peaks.size} to {before}")
        if proof.before() != self.peaks:
            raise Untrusted(f"the hub's peaks at {self.peaks.size} are not ours")
        return self._moved(proof.after(self.peaks).append(receipt.leaf_hash), receipt)

    def noted(self, receipt: Receipt) -> LabelView:
        """The view with a receipt that could not be linked to it."""
        return replace(self, unlinked=receipt)

    def with_cursor(self, client_id: bytes, cursor: ClientCursor) -> LabelView:
        return replace(self, cursors={**self.cursors, client_id: cursor})

    def _moved(self, peaks: Peaks, receipt: Receipt) -> LabelView:
        if peaks.root() != receipt.mmr_root:
            raise Untrusted(f"the root signed at {receipt.stream_seq} is not that of our history")
        passed = self.unlinked is None or self.unlinked.stream_seq <= peaks.size
        return replace(self, peaks=peaks, head=receipt, unlinked=None if passed else self.unlinked)
