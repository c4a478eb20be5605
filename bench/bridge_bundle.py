"""Verification of a bundle on two cores, the bytes of its proof, and its size against the log's.

Two cores is two processes beside this one, against two processes that do nothing but verify
signatures, in turns; the start of the processes is in both.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import bare
import sample
from measure import Measurement, compare_timed

from bridge.bundle import BundleEvent, Header, Metadata, write_bundle
from bridge.trust import TrustStore
from bridge.verify import verify_bundle
from veen import hub_identity, mmr, msg, receipt
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.digest import h
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.limits import ENTRY_HEADER_BYTES
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, open_msg, seal_payload
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd, log_root
from veen.wire import cbor
from veen.wire.body import AnyItem

EVENTS = 12_000
ROUNDS = 5
CORES = 2
VERIFICATIONS = 2
STREAM = "export/bench"
START = 1_700_000_000
HUB = SigningKey(h(b"bench hub"))
IDENTITY = hub_identity.new_identity(HUB.public, START, "none")
TRUST = TrustStore({IDENTITY.hub_id: IDENTITY}, {})
LABEL = derive_label(routing_key(IDENTITY.hub_id), stream_id(STREAM), 0)
LARGEST_LOG = 2**32
MAX_PROOF = 4096


def measure() -> Iterator[Measurement]:
    log = _Log(EVENTS)
    blind = [BundleEvent(payload=e.payload, metadata=None, receipt=e.receipt) for e in log.events]
    # Opening bodies is work beyond the signatures; it is held to the same aim all the same.
    verified = (("bundle_verify", blind, 0.7), ("bundle_verify_disclosed", log.events, 0.7))
    for bench, events, aim in verified:
        raw = log.bundle(events)
        result = compare_timed(partial(_verify, raw), _bare_verifications, rounds=ROUNDS)
        yield Measurement(
            bench=bench,
            value=1 / result.seconds,
            unit="events/s",
            against="rate of two bare Ed25519 verifications, on two cores as well",
            ratio=1 / result.ratio,
            at_least=aim,
        )
    framed = sum(ENTRY_HEADER_BYTES + len(e.payload) + len(e.receipt) for e in log.events)
    for bench, events in (("bundle_size", blind), ("bundle_size_disclosed", log.events)):
        size = len(log.bundle(events))
        yield Measurement(
            bench=bench,
            value=size / EVENTS,
            unit="bytes/event",
            against="entries as they are framed in the log",
            ratio=size / framed,
            at_most=1.05,
        )
    largest = max(_proof_bytes(first, last, size) for first, last, size in _ranges())
    yield Measurement(
        bench="bundle_proof",
        value=largest,
        unit="bytes, at most, in logs of up to 2^32",
        against=f"{MAX_PROOF} bytes",
        ratio=largest / MAX_PROOF,
        at_most=1,
    )


def _verify(raw: bytes) -> float:
    """Seconds of one event."""
    begun = time.perf_counter()
    verify_bundle(io.BytesIO(raw), TRUST, None, workers=CORES)
    return (time.perf_counter() - begun) / EVENTS


def _bare_verifications() -> float:
    """Seconds of the two signatures of one event, when two processes share the work."""
    count = VERIFICATIONS * EVENTS // CORES
    begun = time.perf_counter()
    with ProcessPoolExecutor(CORES, get_context("spawn")) as pool:
        list(pool.map(bare.verify, [count] * CORES))
    return (time.perf_counter() - begun) / EVENTS


class _Constant:
    def node(self, height: int, index: int) -> bytes:  # noqa: ARG002 - every node has 32 bytes
        return bytes(32)


def _proof_bytes(first: int, last: int, size: int) -> int:
    return len(RangeProof.build(_Constant(), first, last, size).encode())


def _ranges() -> Iterator[tuple[int, int, int]]:
    """Those with the most peaks before and the most subtrees after, and others."""
    for bits in range(1, 33):
        size = 2**bits - 1
        for first in {
            1,
            size // 2 + 1,
            size // 3 + 1,
            2 ** (bits - 1),
            max(1, 2 ** (bits - 1) - 1),
        }:
            for last in {first, min(size, first + 100_000), size, size // 2 + 1}:
                if first <= last:
                    yield first, last, size
    yield 2**31, 2**31, LARGEST_LOG
    yield 2**31 + 1, 2**31 + 1, LARGEST_LOG - 1


class _Log:
    """A stream of events with 512 bytes of payload, metadata and disclosed bodies."""

    def __init__(self, count: int) -> None:
        self._peaks = mmr.EMPTY
        self.events = [self._event(seq) for seq in range(1, count + 1)]

    def bundle(self, events: list[BundleEvent]) -> bytes:
        count, root = len(events), self._peaks.root()
        header = Header(
            source_hub_id=IDENTITY.hub_id,
            source_profile_id=h(b"profile"),
            export_stream_id=stream_id(STREAM),
            export_stream=STREAM,
            export_seq_from=1,
            export_seq_to=count,
            export_time_from=START + 1,
            export_time_to=START + count,
            export_checkpoint=_checkpoint(count, root),
        )
        proof = RangeProof(from_seq=1, to_seq=count, size=count, peaks_before=(), subtrees_after=())
        file = io.BytesIO()
        write_bundle(file, header, events, proof)
        return file.getvalue()

    def _event(self, seq: int) -> BundleEvent:
        event = RecordEvent(
            subject_id=f"host/{seq % 100}",
            principal_id=sample.CLIENT.public,
            event_type="config.changed",
            event_time=(START + seq) * 1000,
            origin="z1",
            payload=AnyItem(cbor.encode("x" * 509)),
        )
        place = SealPlace(
            profile=DEFAULT_PROFILE,
            label=LABEL,
            client_id=sample.CLIENT.public,
            client_seq=seq,
            prev_ack=seq - 1,
            auth_ref=h(b"capability"),
        )
        sealed = seal_payload(
            recipient=sample.READER_PUBLIC,
            ephemeral=h(cbor.dump(seq)),
            place=place,
            header=PayloadHdr(schema=RECORD_SCHEMA),
            body=event.encode(),
            limits=sample.LIMITS,
        )
        issued = msg.issue(
            sample.CLIENT,
            profile_id=DEFAULT_PROFILE.profile_id(),
            label=LABEL,
            client_seq=seq,
            prev_ack=seq - 1,
            auth_ref=place.auth_ref,
            ciphertext=sealed.ciphertext,
        )
        self._peaks = self._peaks.append(issued.leaf)
        raw = receipt.issue(
            HUB,
            label=LABEL,
            stream_seq=seq,
            leaf=issued.leaf,
            root=self._peaks.root(),
            hub_ts=START + seq,
        )
        opened = open_msg(
            private=sample.READER_PRIVATE,
            msg=Msg.decode(issued.raw),
            profile=DEFAULT_PROFILE,
            limits=sample.LIMITS,
        )
        return BundleEvent(
            payload=issued.raw,
            metadata=Metadata.of(event, Receipt.decode(raw)),
            receipt=raw,
            body_key=opened.body_key,
        )


def _checkpoint(size: int, root: bytes) -> RecorderCheckpoint:
    ends = (StreamEnd(stream_id=stream_id(STREAM), last_seq=size, mmr_root=root),)
    checkpoint = Checkpoint(
        label_prev=LABEL, label_curr=LABEL, upto_seq=size, mmr_root=root, epoch=0
    )
    return RecorderCheckpoint(
        hub_id=IDENTITY.hub_id,
        hub_public=HUB.public,
        profile_id=h(b"profile"),
        created_at=START + size,
        log_root=log_root(ends),
        ends=ends,
        names=(STREAM,),
        checkpoints=(checkpoint.signed(HUB),),
    ).signed(HUB)
