"""Streams of one hub in memory: every message sealed and signed, every place receipted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from recorder.query.evidence import Witness
from recorder.query.execute import StreamSpan
from recorder.query.select import QueryEntry
from support.recorder.query_histories import STREAMS as SEARCHED
from support.recorder.query_histories import principal, principal_seed
from veen import mmr, msg, receipt
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey, hpke_public_key
from veen.digest import h
from veen.events import RECORD_SCHEMA, NotAnEvent, RecordEvent, read_event
from veen.hub_identity import new_identity
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.limits import Limits
from veen.payload import PayloadHdr, SealPlace, open_msg, seal_payload
from veen.proofs import InclusionProof, RangeProof
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint, StreamEnd, log_root
from veen.wire.body import AnyItem
from veen.wire.canonical_json import json_to_cbor

HUB = SigningKey(h(b"the hub's key"))
READER = h(b"the reader's key")
KEYS = {principal(n): SigningKey(principal_seed(n)) for n in range(1, 4)}
STREAMS = (*SEARCHED, "record/query/requests", "record/query/results")
PROFILE_ID = h(b"a recorder's profile")


def as_event(item: Any) -> RecordEvent:
    """The event of an item of a random history."""
    return RecordEvent(
        subject_id=item.subject_id,
        principal_id=bytes.fromhex(item.principal_id),
        event_type=item.event_type,
        event_time=item.event_time,
        origin=item.origin,
        payload=AnyItem(json_to_cbor(json.dumps(item.payload, ensure_ascii=False))),
    )


def as_entry(item: Any) -> QueryEntry:
    event = as_event(item) if item.is_event else None
    return QueryEntry(item.stream, item.seq, item.hub_ts, bytes.fromhex(item.leaf_hash), event)


class MemoryNodes:
    """The nodes of one stream, by position."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.peaks = mmr.EMPTY

    def append(self, leaf: bytes) -> bytes:
        self.peaks, completed = mmr.grow(self.peaks, leaf)
        self.nodes += completed
        return self.peaks.root()

    def node(self, height: int, index: int) -> bytes:
        return self.nodes[mmr.position(height, index)]


class RecordedLog:
    """``entries`` are all of it in the order of rows; ``checkpoint`` speaks of all of it."""

    def __init__(self, history: Sequence[Any]) -> None:
        self.hub_key = HUB
        self.hub = new_identity(HUB.public, 0, "none")
        self.signature = self.hub.signature_by(HUB)
        self.nodes = {stream: MemoryNodes() for stream in STREAMS}
        self.client_seqs: dict[tuple[str, str], int] = {}
        self.pairs: dict[tuple[str, int], tuple[bytes, bytes, bytes]] = {}
        result = [self.take(item, as_event(item)) for item in history]
        self.entries = sorted(result, key=lambda entry: entry.order_key)
        self.plain_items: list[dict[str, Any]] = []
        self.checkpoint = self.make_checkpoint(max((m.hub_ts for m in history), default=1) + 1)

    def take(self, item: Any, event: RecordEvent) -> QueryEntry:
        """Send, receipt and keep one message; what is no event has another schema."""
        schema = RECORD_SCHEMA if item.is_event else h(b"another schema")
        return self.append(item.stream, item.hub_ts, event, schema)

    def append(
        self, stream: str, hub_ts: int, event: RecordEvent, schema: bytes = RECORD_SCHEMA
    ) -> QueryEntry:
        key = KEYS[event.principal_id.hex()]
        place = self._place(stream, key)
        sealed = seal_payload(
            recipient=hpke_public_key(READER),
            ephemeral=sha256(f"{stream} {place.client_seq} {key.public.hex()}".encode()).digest(),
            place=place, header=PayloadHdr(schema=schema), body=event.encode(), limits=Limits(),
        )  # fmt: skip
        raw, leaf = msg.issue(
            key, profile_id=DEFAULT_PROFILE.profile_id(), label=place.label,
            client_seq=place.client_seq, prev_ack=0, auth_ref=None, ciphertext=sealed.ciphertext,
        )  # fmt: skip
        root = self.nodes[stream].append(leaf)
        seq = self.nodes[stream].peaks.size
        receipted = receipt.issue(
            HUB, label=place.label, stream_seq=seq, leaf=leaf, root=root, hub_ts=hub_ts
        )
        opened = open_msg(
            private=READER, msg=msg.Msg.decode(raw), profile=DEFAULT_PROFILE, limits=Limits()
        )
        self.pairs[stream, seq] = raw, receipted, opened.body_key
        try:
            record_event = read_event(opened.header.schema, opened.body, key.public)
        except NotAnEvent:
            record_event = None
        return QueryEntry(stream, seq, hub_ts, leaf, record_event)

    def make_checkpoint(self, created_at: int, streams: Iterable[str] = STREAMS) -> Any:
        named = sorted(streams, key=stream_id)
        ends = tuple(self._end(stream) for stream in named)
        return RecorderCheckpoint(
            hub_id=self.hub.hub_id, hub_public=HUB.public, profile_id=PROFILE_ID,
            created_at=created_at, log_root=log_root(ends), ends=ends, names=tuple(named),
            checkpoints=tuple(
                Checkpoint(
                    label_prev=self.label(name), label_curr=self.label(name), upto_seq=end.last_seq,
                    mmr_root=end.mmr_root, epoch=0,
                ).signed(HUB)
                for name, end in zip(named, ends, strict=True) if end.last_seq
            ),
        ).signed(HUB)  # fmt: skip

    def witness(self, entry: QueryEntry, checkpoint: Any = None) -> Witness:
        raw, receipted, body_key = self.pairs[entry.stream, entry.seq]
        size = (checkpoint or self.checkpoint).end(entry.stream).last_seq
        proof = InclusionProof.build(self.nodes[entry.stream], entry.seq, size)
        return Witness(msg=raw, receipt=receipted, body_key=body_key, inclusion=proof)

    def proofs(self, spans: dict[str, StreamSpan]) -> dict[str, RangeProof]:
        return {
            stream: RangeProof.build(
                self.nodes[stream], span.first, span.last, self.checkpoint.end(stream).last_seq
            )
            for stream, span in spans.items()
        }

    def within(self, spans: dict[str, StreamSpan]) -> list[QueryEntry]:
        return [
            entry
            for entry in self.entries
            if entry.stream in spans
            and spans[entry.stream].first <= entry.seq <= spans[entry.stream].last
        ]

    def times(self, stream: str) -> list[int]:
        return [entry.hub_ts for entry in self.entries if entry.stream == stream]

    def label(self, stream: str) -> bytes:
        return derive_label(routing_key(self.hub.hub_id), stream_id(stream), 0)

    def _place(self, stream: str, key: SigningKey) -> SealPlace:
        counted = stream, key.public.hex()
        self.client_seqs[counted] = self.client_seqs.get(counted, 0) + 1
        return SealPlace(
            profile=DEFAULT_PROFILE, label=self.label(stream), client_id=key.public,
            client_seq=self.client_seqs[counted], prev_ack=0, auth_ref=None,
        )  # fmt: skip

    def _end(self, stream: str) -> StreamEnd:
        peaks = self.nodes[stream].peaks
        root = peaks.root() if peaks.size else EMPTY_ROOT
        return StreamEnd(stream_id=stream_id(stream), last_seq=peaks.size, mmr_root=root)
