"""Verification of a bundle, cheap checks first; the first fault ends it (AGB0 4.5).

Events are checked in batches, in any process: signatures, and the metadata against the event itself
and, where the body is disclosed, against the body (AGB0 4.4). A fault of an event is returned
rather than raised, since only the caller sees all batches. The range proof of a bundle is an
inclusion proof of all its events at the checkpoint. Continuity is the consistency proof between
bundles: it compares a bundle with what the importing zone holds of its stream (AGB0 4.8).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol

from bridge.bundle import (
    BundleEvent,
    BundleLimits,
    BundleSource,
    Header,
    Metadata,
    Survey,
    read_batch,
    survey,
)
from bridge.errors import CarrierFault, CarrierRefused
from bridge.trust import TrustStore
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE, derive_label, routing_key
from veen.mmr import Peaks
from veen.msg import Msg
from veen.payload import open_body
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd
from veen.system.environment import Progress, no_progress
from veen.system.process_pool import pool
from veen.wire import cbor

_HASH = 32


class HeldStream(Protocol):
    """The imported part of a stream."""

    def last_seq(self) -> int:
        """The last event before any gap; 0 if none is held."""

    def root_at(self, seq: int) -> bytes | None:
        """The verified root of the source stream at ``seq``; None if it is not held."""


class Continuity(Enum):
    FIRST = "the stream begins here"
    FOLLOWS = "it follows what is held"
    OVERLAPS = "it begins within what is held"
    GAP = "events before it are not held yet"
    UNTESTED = "nothing was given to join on to"


def verify_continuity(proof: RangeProof, held: HeldStream | None) -> Continuity:
    """Refuse a bundle that does not continue what is held: the hub signed two histories."""
    before = proof.from_seq - 1
    if before == 0:
        return Continuity.FIRST
    if held is None:
        return Continuity.UNTESTED
    root = held.root_at(before)
    if root is None:
        return Continuity.GAP if before > held.last_seq() else Continuity.UNTESTED
    if proof.before().root() != root:
        raise CarrierRefused(
            CarrierFault.FORK,
            f"the root at {before} differs from the one held: the hub signed two histories",
            seq=proof.from_seq,
        )
    return Continuity.FOLLOWS if before == held.last_seq() else Continuity.OVERLAPS


def wrong_metadata(event: BundleEvent, msg: Msg, receipt: Receipt) -> CarrierRefused | None:
    """The fault of an event's metadata, if it has one.

    Principal and hub time are always checked; the rest only if the body is disclosed.
    """
    metadata, seq = event.metadata, receipt.stream_seq
    if metadata is None and event.body_key is None:
        return None
    if metadata is not None and metadata.principal_id != msg.client_id:
        return CarrierRefused(
            CarrierFault.METADATA, "principal_id is not the client_id of the message", seq=seq
        )
    if metadata is not None and metadata.hub_commit_time != receipt.hub_ts:
        return CarrierRefused(
            CarrierFault.METADATA, "hub_commit_time is not the hub_ts of the receipt", seq=seq
        )
    if event.body_key is None:
        return None
    try:
        body = open_body(body_key=event.body_key, msg=msg, profile=DEFAULT_PROFILE)
        if metadata is None or is_encoding_of(metadata, body):
            return None
    except (Malformed, Untrusted) as error:
        return CarrierRefused(CarrierFault.METADATA, f"the body: {error}", seq=seq)
    return CarrierRefused(CarrierFault.METADATA, "the metadata differs from the body", seq=seq)


def is_encoding_of(metadata: Metadata, body: bytes) -> bool:
    """Whether the body is the encoding of a RecordEvent with exactly these fields.

    An event has one encoding, so that comparing bytes gives the answer of decoding it, at a
    fraction of the cost.
    """
    before = cbor.dump({"origin": metadata.origin, "payload": 0})[1:-1]
    after = cbor.dump(
        {
            "event_time": metadata.event_time,
            "event_type": metadata.event_type,
            "subject_id": metadata.subject_id,
            "principal_id": metadata.principal_id,
        }
    )[1:]
    if not (body.startswith(b"\xa6" + before) and body.endswith(after)):
        return False
    return cbor.skip(body, 1 + len(before)) == len(body) - len(after)


@dataclass(frozen=True, slots=True)
class BundleTerms:
    """What the events of a bundle are verified against."""

    hub: HubIdentity
    label: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The result for a batch, up to its first misplaced event.

    The three kinds of fault rank in this order over the whole bundle, wherever they occur in it.
    """

    leaves: bytes
    """The leaf hashes of the receipts, 32 bytes each; ``roots`` likewise."""
    roots: bytes
    first_ts: int
    last_ts: int
    misplaced: CarrierRefused | None
    unsigned: CarrierRefused | None
    misreported: CarrierRefused | None
    with_metadata: int
    """Events with metadata."""
    unopened: int
    """Events with metadata whose body is not disclosed, so that not all of it could be checked."""


def examine(raw: bytes, first_seq: int, terms: BundleTerms) -> Findings:
    """Decode each event strictly, recompute its leaf hash from the message, verify both
    signatures.
    """
    receipts: list[Receipt] = []
    misplaced = unsigned = misreported = None
    with_metadata = unopened = 0
    for seq, raw_event in enumerate(cbor.decode_sequence(raw), first_seq):
        try:
            event, msg, receipt = _decode_event(raw_event, seq)
            _verify_place(msg, receipt, seq, terms)
        except CarrierRefused as error:
            misplaced = error
            break
        receipts.append(receipt)
        unsigned = unsigned or _bad_signature(msg, receipt, terms)
        with_metadata += event.metadata is not None
        unopened += event.metadata is not None and event.body_key is None
        misreported = misreported or wrong_metadata(event, msg, receipt)
    return Findings(
        leaves=b"".join([receipt.leaf_hash for receipt in receipts]),
        roots=b"".join([receipt.mmr_root for receipt in receipts]),
        first_ts=receipts[0].hub_ts if receipts else 0,
        last_ts=receipts[-1].hub_ts if receipts else 0,
        misplaced=misplaced,
        unsigned=unsigned,
        misreported=misreported,
        with_metadata=with_metadata,
        unopened=unopened,
    )


def _bad_signature(msg: Msg, receipt: Receipt, terms: BundleTerms) -> CarrierRefused | None:
    seq = receipt.stream_seq
    try:
        terms.hub.verify_receipt(receipt)
    except Untrusted as error:
        return CarrierRefused(CarrierFault.RECEIPT_SIG, str(error), seq=seq)
    if not msg.signature_is_valid():
        return CarrierRefused(
            CarrierFault.MSG_SIG, "the message is not signed by its client", seq=seq
        )
    return None


def _decode_event(raw_event: bytes, seq: int) -> tuple[BundleEvent, Msg, Receipt]:
    try:
        event = BundleEvent.decode(raw_event)
        return event, Msg.decode(event.payload), Receipt.decode(event.receipt)
    except Malformed as error:
        raise CarrierRefused(CarrierFault.EVENT_FORMAT, str(error), seq=seq) from error


def _verify_place(msg: Msg, receipt: Receipt, seq: int, terms: BundleTerms) -> None:
    if receipt.stream_seq != seq:
        raise CarrierRefused(
            CarrierFault.PLACE,
            f"expected the receipt of event {seq}, got that of {receipt.stream_seq}",
            seq=seq,
        )
    if msg.label != terms.label or receipt.label != terms.label:
        raise CarrierRefused(CarrierFault.PLACE, "an event of another stream", seq=seq)
    if not msg.ct_hash_matches() or msg.leaf_hash() != receipt.leaf_hash:
        raise CarrierRefused(CarrierFault.LEAF, "the receipt is not for this message", seq=seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBundle:
    """A valid bundle.

    The body of ``unopened`` of the events ``with_metadata`` is not disclosed: only their principal
    and hub time could be checked.
    """

    survey: Survey
    continuity: Continuity
    root: bytes
    """The root of the source stream at the last event, which the next bundle must continue."""
    with_metadata: int
    unopened: int

    @property
    def header(self) -> Header:
        return self.survey.header


def verify_bundle(
    source: BundleSource,
    trust: TrustStore,
    held: HeldStream | None,
    limits: BundleLimits = BundleLimits(),  # noqa: B008 - frozen
    workers: int = 1,
    progress: Progress = no_progress,
) -> VerifiedBundle:
    """Verify everything that can be verified offline, without the hub, or raise CarrierRefused.

    With ``workers`` above 1 the events are checked in as many processes. ``progress`` counts
    events.
    """
    surveyed = survey(source, limits)
    header = surveyed.header
    if header.bundle_id != surveyed.digest:
        raise CarrierRefused(CarrierFault.BUNDLE_ID, "bundle_id is not the hash of the bundle")
    hub = trusted_hub(header.source_hub_id, trust)
    verify_checkpoint(header.export_checkpoint, hub)
    end = _end(surveyed)
    _verify_dates(header, hub)
    terms = BundleTerms(hub, derive_label(routing_key(hub.hub_id), header.export_stream_id, 0))
    with pool(workers if workers > 1 else 0) as beside:
        batches = ((read_batch(source, batch), batch.first_seq) for batch in surveyed.batches)
        examined = beside.run(partial(_examined, terms), batches)
        replay = _verify_range(surveyed, end, examined, progress)
    continuity = verify_continuity(surveyed.proof, held)
    for fault in (replay.unsigned, replay.misreported):
        if fault is not None:
            raise fault
    return VerifiedBundle(
        survey=surveyed,
        continuity=continuity,
        root=replay.root,
        with_metadata=replay.with_metadata,
        unopened=replay.unopened,
    )


def trusted_hub(hub_id: bytes, trust: TrustStore) -> HubIdentity:
    hub = trust.hubs.get(hub_id)
    if hub is None:
        why = trust.revoked.get(hub_id)
        what = "is not in the trust store" if why is None else f"is revoked: {why}"
        raise CarrierRefused(CarrierFault.HUB, f"hub {hub_id.hex()} {what}")
    return hub


def verify_checkpoint(checkpoint: RecorderCheckpoint, hub: HubIdentity) -> None:
    if checkpoint.hub_id != hub.hub_id:
        raise CarrierRefused(
            CarrierFault.HUB,
            f"expected a checkpoint of hub {hub.hub_id.hex()}, got {checkpoint.hub_id.hex()}",
        )
    if checkpoint.hub_public not in {key.hub_pk for key in hub.hub_keys}:
        detail = f"{checkpoint.hub_public.hex()} is not a pinned key of the hub, or is revoked"
        raise CarrierRefused(CarrierFault.HUB_KEY, detail)
    try:
        checkpoint.verify(hub)
    except Untrusted as error:
        raise CarrierRefused(CarrierFault.CHECKPOINT, str(error)) from error


def _verify_dates(header: Header, hub: HubIdentity) -> None:
    """Refuse a checkpoint that is older than the events, or whose key was retired before them.

    The times are those of the header; the events are checked to have them.
    """
    try:
        header.export_checkpoint.verify_entry_time(hub, header.export_stream, header.export_time_to)
    except Untrusted as error:
        raise CarrierRefused(CarrierFault.CHECKPOINT, str(error)) from error


def _end(survey: Survey) -> StreamEnd:
    """The end of the stream at the checkpoint, which the proof must be about."""
    header, proof = survey.header, survey.proof
    end = header.export_checkpoint.end(header.export_stream)
    if end is None or end.last_seq < header.export_seq_to:
        raise CarrierRefused(CarrierFault.RANGE, "the checkpoint does not reach the last event")
    expected = (header.export_seq_from, header.export_seq_to, end.last_seq)
    if (proof.from_seq, proof.to_seq, proof.size) != expected:
        raise CarrierRefused(
            CarrierFault.RANGE,
            f"the proof: expected (from, to, size) {expected}, got "
            f"{(proof.from_seq, proof.to_seq, proof.size)}",
        )
    return end


@dataclass(slots=True)
class _Replay:
    """The Merkle range while the events of a bundle are appended to it."""

    peaks: Peaks
    root: bytes = b""
    times: tuple[int, int] | None = None
    unsigned: CarrierRefused | None = None
    misreported: CarrierRefused | None = None
    with_metadata: int = 0
    unopened: int = 0

    def add(self, findings: Findings) -> None:
        """Append a batch; CarrierRefused at the first leaf that does not lead to the root of its
        receipt.
        """
        for at in range(0, len(findings.leaves), _HASH):
            self.peaks = self.peaks.append(findings.leaves[at : at + _HASH])
            self.root = self.peaks.root()
            if self.root != findings.roots[at : at + _HASH]:
                detail = "the range has another root than the receipt"
                raise CarrierRefused(CarrierFault.ROOT, detail, seq=self.peaks.size)
        if findings.misplaced is not None:
            raise findings.misplaced
        self.times = (self.times or (findings.first_ts, 0))[0], findings.last_ts
        self.unsigned = self.unsigned or findings.unsigned
        self.misreported = self.misreported or findings.misreported
        self.with_metadata += findings.with_metadata
        self.unopened += findings.unopened


def _examined(terms: BundleTerms, batch: tuple[bytes, int]) -> Findings:
    raw, first_seq = batch
    return examine(raw, first_seq, terms)


def _verify_range(
    survey: Survey, end: StreamEnd, examined: Iterable[Findings], progress: Progress
) -> _Replay:
    """Append all events to the range, and verify it from the last event to the checkpoint."""
    header, replay = survey.header, _Replay(_before(survey))
    for findings in examined:
        replay.add(findings)
        progress(replay.peaks.size + 1 - header.export_seq_from, header.count)
    if replay.times != (header.export_time_from, header.export_time_to):
        expected = (header.export_time_from, header.export_time_to)
        raise CarrierRefused(
            CarrierFault.RANGE, f"expected hub times {expected}, got {replay.times}"
        )
    try:
        survey.proof.verify_after(replay.peaks, size=end.last_seq, root=end.mmr_root)
    except Untrusted as error:
        raise CarrierRefused(CarrierFault.PROOF, str(error), seq=header.export_seq_to) from error
    return replay


def _before(survey: Survey) -> Peaks:
    try:
        return survey.proof.before()
    except Untrusted as error:
        raise CarrierRefused(CarrierFault.PROOF, str(error), seq=survey.proof.from_seq) from error
