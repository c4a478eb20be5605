"""Offline verification of a replay output: signatures, leaves, order, proofs, and every byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recorder.replay.output import OutputRecord, form_of, read_records
from recorder.replay.plan import ReplayPlan, at, labels_of, rules_of
from recorder.replay.records import (
    READER_FAULTS,
    Item,
    OutputCursor,
    Proof,
    RecordFormat,
    WrittenItem,
    derived_item,
    sealed_item,
)
from veen.client.log_head import Pair
from veen.client.verified_read import ClientCursors
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.invariants import Before, Rules, Violation, verify_place, verify_signatures
from veen.mmr import Peaks
from veen.proofs import RangeProof
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint
from veen.system.environment import Progress, no_progress


class NotCheckable(VeenError):
    """An output without proofs, which cannot be verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVerified:
    """The result of a verification.

    ``unopened`` counts messages whose fault only the reader's key could show: sealed to others, or
    said to be of another schema.
    """

    plan: ReplayPlan
    hub: HubIdentity
    """The newest identity of the hub, with which it was verified."""
    proven: int
    unproven: int
    kinds: dict[str, int]
    unopened: int


def check_file(
    path: Path,
    hub_id: bytes,
    checkpoint: RecorderCheckpoint | None = None,
    progress: Progress = no_progress,
    known: HubIdentity | None = None,
) -> ReplayVerified:
    """Verify that all of an output is what this hub's log holds up to the checkpoint.

    ``known`` is the newest identity of the hub known here; the output contains its own, in which a
    key that has retired since is still current.
    """
    if path.is_dir():
        raise NotCheckable(f"{path}: Parquet has no proofs; replay as jsonl or cbor to verify")
    form = form_of(path)
    records = read_records(path, form)
    first = next(records, None)
    plan = _plan(path, first, checkpoint)
    check = _ReplayCheck(plan, form, plan.verify(hub_id, known))
    _verify_has_proofs(path, plan)
    end = _take_all(path, check, records, progress) or len(first.raw if first else b"")
    check.cursor.verify_complete()
    if end != path.stat().st_size:
        raise Untrusted(
            f"{path}: expected the end at byte {end}, after the last complete record, got more"
        )
    return check.result()


def _plan(
    path: Path, first: OutputRecord | None, checkpoint: RecorderCheckpoint | None
) -> ReplayPlan:
    if first is None or not isinstance(first.record, ReplayPlan):
        raise Malformed(f"{path}: expected the plan of a replay as the first record")
    plan = first.record
    if checkpoint is not None and checkpoint.encode() != plan.checkpoint.encode():
        raise Untrusted(f"{path}: its proofs are of another checkpoint, {plan.checkpoint_id.hex()}")
    return plan


def _verify_has_proofs(path: Path, plan: ReplayPlan) -> None:
    if not plan.requested.with_proofs:
        raise NotCheckable(f"{path} has no proofs to verify; replay again with --with-proofs")


def _take_all(
    path: Path, check: _ReplayCheck, records: Iterator[OutputRecord], progress: Progress
) -> int:
    """Verify all records; return where the last one ends, 0 without any."""
    end = 0
    for start, raw, record in records:
        end = start + len(raw)
        try:
            check.take(record, raw)
        except VeenError as error:
            error.add_note(f"in {path}, byte {start}")
            raise
        progress(check.cursor.done, check.cursor.plan.count)
    return end


class _ReplayCheck:
    def __init__(self, plan: ReplayPlan, form: RecordFormat, hub: HubIdentity) -> None:
        self.cursor = OutputCursor(plan)
        self._hub = hub
        self._form = form
        self._queues = {
            stream_range.stream: _StreamCheck(plan, hub, stream_range.stream, stream_range.from_seq)
            for stream_range in plan.stream_ranges
        }
        self._counts: Counter[str] = Counter()
        self._unopened = 0

    def take(self, record: ReplayPlan | Proof | WrittenItem, raw: bytes) -> None:
        if isinstance(record, ReplayPlan):
            raise Malformed("expected one plan, as the first record")
        if isinstance(record, Proof):
            self.cursor.proof(record)
            self._queues[record.stream].begin(record.proof)
            return
        self.cursor.item(record.stream, record.receipt, proven=record.proven)
        item = self._derived(record)
        self._queues[record.stream].take(item)
        if self._form.encode(item, self.cursor.plan) != raw:
            where = at(record.stream, item.seq)
            raise Untrusted(f"{where}: its fields differ from the message in it")
        self._counts[item.kind.value] += 1
        self._counts["proven" if item.proven else "unproven"] += 1
        self._unopened += item.fault is not None and item.fault.fault in READER_FAULTS

    def result(self) -> ReplayVerified:
        return ReplayVerified(
            plan=self.cursor.plan,
            hub=self._hub,
            proven=self._counts.pop("proven", 0),
            unproven=self._counts.pop("unproven", 0),
            kinds=dict(self._counts),
            unopened=self._unopened,
        )

    def _derived(self, written: WrittenItem) -> Item:
        where = at(written.stream, written.receipt.stream_seq)
        if written.msg is None:
            raise Untrusted(f"{where}: its message is missing")
        pair, proven = Pair(written.msg, written.receipt), written.proven
        if written.is_closed == self.cursor.plan.requested.opened:
            raise Untrusted(f"{where}: whether it is opened differs from the plan")
        if written.is_closed:
            return sealed_item(written.stream, pair, proven=proven)
        if written.body_key is None:
            return _unopened(written, pair)
        try:
            return derived_item(
                written.stream, pair, written.body_key, written.fault, proven=proven
            )
        except VeenError as error:
            raise Untrusted(f"{where}: its body_key does not open it: {error}") from error


def _unopened(written: WrittenItem, pair: Pair) -> Item:
    """An item that the reader could not open; only the message supports that."""
    if written.fault is None or written.fault.fault not in READER_FAULTS:
        where = at(written.stream, written.receipt.stream_seq)
        raise Untrusted(f"{where}: without a body_key, expected the reader's fault, got an event")
    return Item(
        stream=written.stream,
        msg=pair.msg,
        receipt=pair.receipt,
        proven=written.proven,
        fault=written.fault,
    )


class _StreamCheck:
    """Verifies the pairs of a stream by the invariants, from proof to proof."""

    def __init__(self, plan: ReplayPlan, hub: HubIdentity, stream: str, from_seq: int) -> None:
        self._stream = stream
        self._hub = hub
        self._checkpoint = plan.checkpoint
        self._rules: Rules = rules_of(hub, stream)
        self._label = labels_of(hub, stream).at(0)
        end = plan.checkpoint.end(stream)
        # From the signed checkpoint, never from the proof itself.
        self._size, self._root = (end.last_seq, end.mmr_root) if end else (0, EMPTY_ROOT)
        self._cursors = ClientCursors(from_start=from_seq == 1)
        self._proof: RangeProof | None = None
        self._peaks: Peaks | None = None

    def begin(self, proof: RangeProof) -> None:
        self._proof, self._peaks = proof, proof.before()

    def take(self, item: Item) -> None:
        try:
            self._fold(item)
        except Violation as error:
            raise Untrusted(f"{at(self._stream, item.seq)}: {error.reason}") from error
        except Untrusted as error:
            raise Untrusted(f"{at(self._stream, item.seq)}: {error}") from error

    def _fold(self, item: Item) -> None:
        msg, receipt = item.msg, item.receipt
        verify_signatures(msg, receipt, self._rules)
        if self._peaks is None:
            # The range begins above the checkpoint, so the peaks are unknown.
            label = self._label
            if (msg.leaf_hash(), msg.label, label) != (receipt.leaf_hash, label, receipt.label):
                raise Untrusted("the receipt is of another message or stream")
            return
        client = self._cursors.of(msg.client_id)
        before = Before(peaks=self._peaks, client=client, grant=None)
        after = verify_place(msg, receipt, before, self._rules)
        self._cursors.put(msg.client_id, after.client)
        self._peaks = after.peaks
        proof = self._proof
        if proof is not None and after.peaks.size == proof.to_seq:
            self._checkpoint.verify_entry_time(self._hub, self._stream, receipt.hub_ts)
            proof.verify_after(after.peaks, size=self._size, root=self._root)
            self._proof = None
