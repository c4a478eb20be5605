"""An index of one stream, made without a hub, in which the events of one subject are real.

A real event was sealed and signed, and its receipt signed, as a client and a hub do it. The rest
are fillers: rows of the usual size with a leaf of their own, which no query here returns. They
went in through the writer of the follower, so rows, keys, nodes and roots are those of a log of
that size; their messages and receipts are one sample, unsigned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import sample

from recorder.index.proofs import check_checkpoint
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import EntryReader, EventReading, IndexWriter, writing
from veen import msg, receipt
from veen.checkpoint import Checkpoint
from veen.client.log_head import Pair
from veen.crypto import SigningKey
from veen.digest import h, u64be
from veen.events import RecordEvent
from veen.hub_identity import HubIdentity, new_identity
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.mmr import EMPTY, Peaks
from veen.msg import Msg
from veen.payload import SealPlace, seal_payload
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd, log_root
from veen.wire.body import AnyItem
from veen.wire.canonical_json import json_to_cbor

STREAM, SUBJECT = "record/bench", "user:wanted"
BEGIN, EVENTS_A_SECOND = 1_700_000_000, 50
BATCH = 4_096
SUBJECTS, TYPES, ORIGINS = 5_000, 20, 50
HUB = SigningKey(h(b"the hub of the benchmarks"))
IDENTITY = new_identity(HUB.public, 0, "none")
LABEL = derive_label(routing_key(IDENTITY.hub_id), stream_id(STREAM), 0)
PAYLOAD = json_to_cbor('{"method": "GET", "path": "/v1/things", "status": 200, "ms": 12.5}')
ITEM = AnyItem(PAYLOAD)
PROJECTION = [
    "subject_id", "event_time", "origin", "payload.path", "payload.status", "receipt_id",
]  # fmt: skip
"""That of the example in the specification (Query API 5.1)."""


class Sample:
    """Bytes in the place of a message or a receipt."""

    __slots__ = ("hub_ts", "leaf_hash", "mmr_root", "raw", "stream_seq")

    def __init__(self, raw: bytes, seq: int = 0, leaf: bytes = b"", hub_ts: int = 0) -> None:
        self.raw, self.stream_seq, self.leaf_hash, self.hub_ts = raw, seq, leaf, hub_ts
        self.mmr_root = b""

    def encode(self) -> bytes:
        return self.raw


@dataclass(frozen=True, slots=True)
class Indexed:
    home: IndexHome
    checkpoint: RecorderCheckpoint
    hub: HubIdentity = IDENTITY


class Builder:
    def __init__(self, writer: IndexWriter) -> None:
        self._writer = writer
        self._row = writer.stream(STREAM)
        self._peaks: Peaks = EMPTY
        self._reader = EntryReader([sample.READER_PRIVATE], sample.LIMITS)
        self._msg = Sample(sample.a_msg().encode())
        self._receipt = receipt.issue(
            HUB, label=LABEL, stream_seq=1, leaf=bytes(32), root=bytes(32), hub_ts=BEGIN
        )
        self._key = h(b"the key of no body")

    def fill(self, events: int, real: int) -> RecorderCheckpoint:
        """``real`` of the events are spread evenly, and the last one of all is real."""
        every = events // real
        for start in range(0, events, BATCH):
            self._batch(range(start + 1, min(start + BATCH, events) + 1), every)
        return self._checkpoint()

    def _batch(self, seqs: range, every: int) -> None:
        made = [self._real(seq) if seq % every == 0 else self._filler(seq) for seq in seqs]
        last = made[-1][0].receipt
        if isinstance(last, Sample):
            last.mmr_root = self._peaks.root()
        pairs, readings = [item for item, _ in made], [item for _, item in made]
        self._row = self._writer.append(self._row, pairs, readings)

    def _filler(self, seq: int) -> tuple[Pair, EventReading]:
        leaf, drawn = h(u64be(seq)), seq * 2_654_435_761 % 2**32
        self._peaks = self._peaks.append(leaf)
        result = Sample(self._receipt, seq, leaf, _hub_ts(seq))
        reading = EventReading(
            None, f"user:{drawn % SUBJECTS}", sample.CLIENT.public, f"type.{drawn % TYPES}",
            _hub_ts(seq) * 1000, f"host-{drawn % ORIGINS}", PAYLOAD, self._key,
        )  # fmt: skip
        return Pair(self._msg, result), reading  # type: ignore[arg-type]  # stand-ins

    def _real(self, seq: int) -> tuple[Pair, EventReading]:
        raw, leaf = a_message(seq)
        self._peaks = self._peaks.append(leaf)
        issued = receipt.issue(
            HUB, label=LABEL, stream_seq=seq, leaf=leaf, root=self._peaks.root(),
            hub_ts=_hub_ts(seq),
        )  # fmt: skip
        return Pair(Msg.decode(raw), Receipt.decode(issued)), self._reader.read(raw)

    def _checkpoint(self) -> RecorderCheckpoint:
        size, root = self._peaks.size, self._peaks.root()
        ends = (StreamEnd(stream_id=stream_id(STREAM), last_seq=size, mmr_root=root),)
        own = Checkpoint(
            label_prev=LABEL, label_curr=LABEL, upto_seq=size, mmr_root=root, epoch=0
        ).signed(HUB)
        made = RecorderCheckpoint(
            hub_id=IDENTITY.hub_id, hub_public=HUB.public, profile_id=h(b"profile"),
            created_at=_hub_ts(size) + 1, log_root=log_root(ends), ends=ends, names=(STREAM,),
            checkpoints=(own,),
        ).signed(HUB)  # fmt: skip
        self._writer.db.execute(
            "INSERT INTO checkpoints (checkpoint_id, created_at, document) VALUES (?, ?, ?)",
            (made.checkpoint_id, made.created_at, made.encode()),
        )
        check_checkpoint(self._writer)
        return made


def a_message(seq: int) -> tuple[bytes, bytes]:
    """A signed message with a sealed event of the subject, and its leaf."""
    event = RecordEvent(
        subject_id=SUBJECT, principal_id=sample.CLIENT.public, event_type="type.wanted",
        event_time=_hub_ts(seq) * 1000, origin="host-1", payload=ITEM,
    )  # fmt: skip
    place = SealPlace(
        profile=DEFAULT_PROFILE, label=LABEL, client_id=sample.CLIENT.public, client_seq=seq,
        prev_ack=0, auth_ref=None,
    )  # fmt: skip
    sealed = seal_payload(
        recipient=sample.READER_PUBLIC, ephemeral=h(u64be(seq)), place=place,
        header=sample.HEADER, body=event.encode(), limits=sample.LIMITS,
    )  # fmt: skip
    return msg.issue(
        sample.CLIENT, profile_id=DEFAULT_PROFILE.profile_id(), label=LABEL, client_seq=seq,
        prev_ack=0, auth_ref=None, ciphertext=sealed.ciphertext,
    )  # fmt: skip


def build(root: Path, events: int, real: int) -> Indexed:
    home = IndexHome(root)
    with ExitStack() as closing:
        closing.enter_context(home.locked())
        writer = closing.enter_context(writing(create(home, IDENTITY.hub_id)))
        checkpoint = Builder(writer).fill(events, real)
    return Indexed(home, checkpoint)


def queries(mode: str) -> Iterator[dict[str, object]]:
    """The same query about the real subject, under another name each time."""
    number = 0
    while True:
        number += 1
        yield {
            "query_id": f"q-{number}",
            "scope": [STREAM],
            "filter": {"subject_id": SUBJECT},
            "projection": PROJECTION,
            "evidence": {"mode": mode},
        }


def _hub_ts(seq: int) -> int:
    return BEGIN + seq // EVENTS_A_SECOND
