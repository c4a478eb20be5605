"""Evidence of a result: which rows are verified, how, and how it is reported (Query API 5.4, 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from recorder.query.descriptor import Descriptor, EvidencePolicy
from recorder.query.select import QueryEntry, SourcePlace
from veen.digest import h_blocks, ht, u64be
from veen.errors import Malformed, Untrusted
from veen.events import IMPORT_SCHEMA as IMPORTED
from veen.events import RECORD_SCHEMA, RecordEvent, is_import, read_event, read_imported
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.msg import Msg
from veen.payload import open_body
from veen.proofs import InclusionProof, ProvenRange
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire import canonical_json
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32

_ALL: Final = 2.0**64


class EvidenceSummary(NamedTuple):
    """A line of the summary; ``mmr_root`` is the stream's root in the checkpoint.

    All values are hex.
    """

    receipt_id: str
    mmr_root: str
    hub_id: str


class VerifiedStream(NamedTuple):
    """A stream of a hub whose identity has been verified."""

    stream: str
    hub: HubIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness(WireMap):
    """Proof that an event is in the log; it can be verified without the reader's keys."""

    msg: bytes
    receipt: bytes
    body_key: Bytes32
    inclusion: InclusionProof


def is_sampled(policy: EvidencePolicy, query_id: str, log_root: bytes, index: int) -> bool:
    """Whether the matching event ``index``, from 0 in row order, is verified.

    The root makes the choice unpredictable to writers of events, and repeatable for everyone.
    """
    if policy.sample_rate is None:
        return policy.mode == "full"
    drawn = ht("veen/query-sample", query_id.encode(), log_root, u64be(index))[:8]
    # Multiplying by a power of two is exact, and so is comparing a double with an integer.
    return int.from_bytes(drawn, "big") < policy.sample_rate * _ALL


def verified(entry: QueryEntry, checkpoint: RecorderCheckpoint) -> EvidenceSummary:
    """The summary line of an entry that was verified against the checkpoint."""
    root = _end(entry.stream, checkpoint)[1]
    return EvidenceSummary(entry.receipt_id, root.hex(), checkpoint.hub_id.hex())


def evidence_summary(
    descriptor: Descriptor, result_id: str, lines: Iterable[EvidenceSummary]
) -> dict[str, Any]:
    """The document that evidence_hash covers; ``lines`` are in the order of the events."""
    head = _head(descriptor, result_id)
    if descriptor.evidence.mode == "none":
        return head
    return {**head, "verified": [line._asdict() for line in lines]}


def evidence_hash(descriptor: Descriptor, result_id: str, lines: Iterable[EvidenceSummary]) -> str:
    """The hash of the canonical JSON of the summary, holding one line in memory at a time."""
    head = canonical_json.encode(_head(descriptor, result_id))
    if descriptor.evidence.mode == "none":
        return h_blocks([head]).hex()
    return h_blocks(_blocks(head, lines)).hex()


class WitnessCheck:
    """Verifies witnesses against a checkpoint and a hub that are verified already."""

    def __init__(self, hub: HubIdentity, checkpoint: RecorderCheckpoint) -> None:
        self._hub = hub
        self._checkpoint = checkpoint
        self._ranges: dict[str, ProvenRange] = {}

    def entry(self, witness: Witness, stream: str) -> QueryEntry:
        """Return the entry that a witness proves to be below the checkpoint, or raise Untrusted.

        That the message was sealed as an event is taken from the reader: the key of the body does
        not open its header.
        """
        try:
            place = VerifiedStream(stream, self._hub)
            entry = receipted(witness.msg, witness.receipt, witness.body_key, place)
            self.verify_included(witness.inclusion, entry)
        except (Malformed, Untrusted) as error:
            seq = witness.inclusion.stream_seq
            raise Untrusted(f"{stream} {seq}: no valid inclusion proof: {error}") from error
        return entry

    def event(self, witness: Witness, entry: QueryEntry) -> RecordEvent:
        """Return the event of an entry, after verifying all of it against the witness."""
        proven = self.entry(witness, entry.stream)
        if proven.event is None or proven != entry:
            raise Untrusted(f"{entry.stream} {entry.seq}: the recorded event differs from the row")
        return proven.event

    def verify_included(self, proof: InclusionProof, entry: QueryEntry) -> None:
        """Verify that the entry is below the checkpoint."""
        range_ = self._ranges.get(entry.stream)
        if range_ is None:
            range_ = self._ranges[entry.stream] = ProvenRange(*_end(entry.stream, self._checkpoint))
        range_.verify(proof, leaf_hash=entry.leaf_hash, stream_seq=entry.seq)


def _head(descriptor: Descriptor, result_id: str) -> dict[str, Any]:
    policy = descriptor.evidence.document()
    if descriptor.evidence.mode == "none":
        return policy
    return {"query_id": descriptor.query_id, "result_id": result_id, **policy}


def _blocks(head: bytes, lines: Iterable[EvidenceSummary]) -> Iterator[bytes]:
    """``verified`` sorts last in canonical JSON."""
    yield head[:-1] + b',"verified":['
    for index, line in enumerate(lines):
        encoded = canonical_json.encode(line._asdict())
        yield b"," + encoded if index else encoded
    yield b"]}"


def receipted(
    msg_raw: bytes, receipt_raw: bytes, body_key: bytes, at: VerifiedStream
) -> QueryEntry:
    """Return the entry that the hub has receipted in that stream, decrypted with its body key."""
    msg, receipt = Msg.decode(msg_raw), Receipt.decode(receipt_raw)
    leaf = msg.leaf_hash()
    if msg.label != _label(at.hub.hub_id, at.stream):
        raise Untrusted("the message is of another stream")
    if (msg.label, leaf) != (receipt.label, receipt.leaf_hash):
        raise Untrusted("the receipt is of another message")
    if not msg.signature_is_valid():
        raise Untrusted("the message is not signed by its client")
    at.hub.verify_receipt(receipt)
    body = open_body(body_key=body_key, msg=msg, profile=DEFAULT_PROFILE)
    if is_import(at.stream):
        event, source = _imported(body, msg.client_id)
        return QueryEntry(at.stream, receipt.stream_seq, receipt.hub_ts, leaf, event, source)
    event = read_event(RECORD_SCHEMA, body, msg.client_id)
    return QueryEntry(at.stream, receipt.stream_seq, receipt.hub_ts, leaf, event)


def _imported(body: bytes, client_id: bytes) -> tuple[RecordEvent, SourcePlace]:
    """Return the origin's event within an imported event, and its position there.

    The origin's client has signed the message, and the receipt is for that message and position.
    The receipt's signature was verified with the origin's pinned keys when it was indexed.
    """
    imported = read_imported(IMPORTED, body, client_id)
    msg, receipt = imported.msg(), imported.receipt()
    if msg is None or not msg.signature_is_valid():
        raise Untrusted("the origin's message is missing, or not signed by its client")
    place = SourcePlace(
        imported.source_hub_id,
        imported.origin_stream,
        receipt.stream_seq,
        receipt.hub_ts,
        receipt.leaf_hash,
    )
    return imported.origin_event(), place


@lru_cache(maxsize=256)
def _label(hub_id: bytes, stream: str) -> bytes:
    return derive_label(routing_key(hub_id), stream_id(stream), 0)


def _end(stream: str, checkpoint: RecorderCheckpoint) -> tuple[int, bytes]:
    end = checkpoint.end(stream)
    if end is None:
        raise Untrusted(f"the checkpoint does not cover {stream}")
    return end.last_seq, end.mmr_root
