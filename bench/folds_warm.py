"""A fold of an archived log with warm summaries, at many events against ten thousand.

The logs are real: every message is sealed and signed, a committer wrote it, a push archived it to
a directory, and every block was folded once. What is timed is a whole fold from the head of the
archive on: manifests, identity, summaries, the unfinished block read, verified and opened. Python
and the keystore are up already. Both logs have equally many entries in their open chunk.

BENCH_FOLD_EVENTS=1000000 measures at a million; that takes a quarter of an hour to build.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import inside
import sample
from measure import Measurement, compare_timed

from hub.admission import Gate, VerifiedMsg
from hub.sequencer.committer import Committer
from hub.storage.datadir import DataDir
from recorder.archive.push import push
from recorder.archive.source import PushSource
from recorder.archive.store import HubArchive
from recorder.folds.job import FoldJob, FoldRequest, PreparedSource, carry_out, make, plan
from recorder.folds.source import FoldReader
from veen.digest import h
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.msg import Msg
from veen.objects.port import FileSettings, Store
from veen.objects.store import open_store
from veen.overlay.fold import Node
from veen.overlay.ledger import SCHEMA
from veen.payload import PayloadHdr, SealPlace, seal_payload
from veen.wire import cbor

SMALL = 10_000
EVENTS = int(os.environ.get("BENCH_FOLD_EVENTS", "40000"))
STREAM, OVERLAY = "pay/bench", "wallet.ledger"
ACCOUNTS = 64
GROUP = 1_024
HANDS = 2
HEIGHT = 2
ROUNDS = 15
MILLISECONDS = 1e3


@dataclass(frozen=True, slots=True)
class Archived:
    folder: Path
    hub_id: bytes
    events: int

    def archive(self) -> HubArchive:
        return HubArchive(self.store(), self.hub_id)

    def store(self) -> Store:
        return open_store(FileSettings(self.folder))

    def job(self, *, keeps_summaries: bool) -> FoldJob:
        request = FoldRequest(stream=STREAM, overlay=OVERLAY, keeps_summaries=keeps_summaries)
        return request.job(self.archive())

    def warm(self) -> float:
        """Seconds of a fold from the head of the archive on."""
        begun = time.perf_counter()
        job = self.job(keeps_summaries=True)
        source = job.source(self.archive(), reader())
        folded = carry_out(job, source)
        seconds = time.perf_counter() - begun
        if folded.opened().state.operations != self.events or source.work.events >= GROUP:
            raise AssertionError(f"{source.work} for {self.events} events")
        return seconds

    def make(self, job: FoldJob, node: Node) -> object:
        return make(job, job.source(self.archive(), reader()), node)


def measure() -> Iterator[Measurement]:
    large_size = EVENTS + (SMALL - EVENTS) % sample.LIMITS.max_checkpoint_interval
    with ExitStack() as stack, ProcessPoolExecutor(HANDS) as hands:
        small, large = (
            _archived(stack.enter_context(inside.directory()), size, hands)
            for size in (SMALL, large_size)
        )
        yield _cold(small)
        for item in (small, large):
            _warm_up(item, hands)
        result = compare_timed(large.warm, small.warm, ROUNDS)
        yield Measurement(
            bench=f"fold_warm_at_{large.events}",
            value=result.seconds * MILLISECONDS,
            unit="ms",
            against=f"the same at {small.events} events; {SMALL % GROUP} in the unfinished block",
            ratio=result.ratio,
            at_most=3,
        )


def reader() -> FoldReader:
    return FoldReader((sample.READER_PRIVATE,), DEFAULT_PROFILE, sample.LIMITS)


def _cold(small: Archived) -> Measurement:
    """Nothing kept: every event read, both signatures verified, opened, folded."""
    begun = time.process_time()
    job = small.job(keeps_summaries=False)
    carry_out(job, job.source(small.archive(), reader()))
    rate = small.events / (time.process_time() - begun)
    return Measurement(bench="fold_cold", value=rate, unit="events/s of one core")


def _warm_up(archived: Archived, hands: ProcessPoolExecutor) -> None:
    job = archived.job(keeps_summaries=True)
    source = job.source(archived.archive(), reader())
    result = plan(job, source, HEIGHT)
    made = list(hands.map(partial(_made, archived, job), result.due))
    carry_out(job, PreparedSource(source, result, made))


def _made(archived: Archived, job: FoldJob, node: Node) -> object:
    return archived.make(job, node)


def _archived(datadir: DataDir, size: int, hands: ProcessPoolExecutor) -> Archived:
    with inside.committing(datadir) as gated:
        committer = Committer(gated.log, Gate(required=False, issuers=frozenset()))
        hub_id = committer.log.keys.hub_id
        messages = hands.map(partial(_msg, hub_id), range(1, size + 1), chunksize=256)
        while group := list(islice(messages, GROUP)):
            outcomes = committer.commit([VerifiedMsg.of(msg) for msg in group], inside.CLOCK)
            if not all(isinstance(outcome, bytes) for outcome in outcomes):
                raise AssertionError(f"a message was refused: {outcomes[0]}")
    folder = datadir.root.with_name("store")
    source = PushSource(datadir.root, sample.LIMITS)
    push(source, open_store(FileSettings(folder)), sealer=None, progress=lambda _done, _total: None)
    return Archived(folder, hub_id, size)


def _msg(hub_id: bytes, number: int) -> Msg:
    where = derive_label(routing_key(hub_id), stream_id(STREAM), 0)
    place = SealPlace(
        profile=DEFAULT_PROFILE, label=where, client_id=sample.CLIENT.public, client_seq=number,
        prev_ack=0, auth_ref=None,
    )  # fmt: skip
    ciphertext = seal_payload(
        recipient=sample.READER_PUBLIC,
        ephemeral=h(b"ephemeral %d" % number),
        place=place,
        header=PayloadHdr(schema=SCHEMA),
        body=cbor.dump(_body(number)),
        limits=sample.LIMITS,
    ).ciphertext
    bare = Msg(
        profile_id=DEFAULT_PROFILE.profile_id(), label=where, client_id=sample.CLIENT.public,
        client_seq=number, prev_ack=0, auth_ref=None, ct_hash=h(ciphertext), ciphertext=ciphertext,
    )  # fmt: skip
    return bare.signed(sample.CLIENT)


def _body(number: int) -> dict[str, object]:
    body: dict[str, object] = {
        "operation_type": "pay",
        "operation_args": b"",
        "payer_account": h(b"account %d" % (number % ACCOUNTS)),
        "payee_account": h(b"account %d" % (number * 7 % ACCOUNTS)),
        "amount": number,
    }
    return dict(sorted(body.items(), key=lambda pair: cbor.dump(pair[0])))
