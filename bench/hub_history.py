"""What an operation of a hub costs in processor time as its history grows.

Histories are written by the hub's own committer, in memory (/dev/shm) where there is one: a sync
costs no processor time. Each measurement is the median of some calls; its ratio is that to the
smallest size. ``BENCH_HISTORY`` multiplies the sizes, 10 for the long form.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path

import feed
import inside
import sample
from measure import Measurement

from hub.admission import Gate, VerifiedMsg
from hub.api.app import create_app
from hub.registry import Registry
from hub.sequencer.committer import Committer
from hub.settings import HubSettings
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.log import HubLog
from hub.storage.reader import LogReader
from hub.storage.retention import Rule, plan_retention, prune
from veen.label import DEFAULT_PROFILE, Profile, derive_label, routing_key
from veen.limits import Limits
from veen.log.entry import StreamRecord
from veen.log.layout import ChunkName
from veen.msg import Msg

SCALE = int(os.environ.get("BENCH_HISTORY", "1"))
CALLS = 15
GROUP = 4_096
REPEATED = 100
MILLISECONDS = 1e3
MICROSECONDS = 1e6
_MEMORY = Path("/dev/shm")


def measure() -> Iterator[Measurement]:
    yield from _table("checkpoint", "checkpoints", "ms", checkpoint_costs())
    yield from _table("find_leaf", "entries", "us", find_leaf_costs())
    yield from _table("route", "streams with epochs", "us", route_costs())
    yield from _table("start", "entries of the open chunk", "ms", start_costs())
    yield from _table("prune", "chunks", "ms", prune_costs())
    for path, costs in stream_costs().items():
        # The list of streams is output: it may grow as they do.
        growth = 1 if path == "/healthz" else max(costs) / min(costs)
        yield from _table(f"get{path.replace('/', '_')}", "streams", "ms", costs, 3.0 * growth)


def _table(
    name: str, of: str, unit: str, costs: Mapping[int, float], at_most: float = 3.0
) -> Iterator[Measurement]:
    """A measurement for each size, with its ratio to the first."""
    scale = MILLISECONDS if unit == "ms" else MICROSECONDS
    first = next(iter(costs))
    for size, seconds in costs.items():
        yield Measurement(
            bench=f"hub_history_{name}_at_{size}",
            value=seconds * scale,
            unit=f"{unit} of CPU",
            against=f"the same at {first} {of}",
            ratio=seconds / costs[first],
            at_most=at_most,
        )


@contextmanager
def directory() -> Iterator[DataDir]:
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir=where) as root:
        datadir = DataDir(Path(root) / "hub")
        datadir.create()
        yield datadir


def seconds_of(work: Callable[[], object], calls: int = CALLS) -> float:
    """The median processor time of a call in this process."""
    return statistics.median(_timed(work) for _ in range(calls))


def _timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def checkpoint_costs() -> dict[int, float]:
    """One checkpoint at the head, of a label that has so many."""
    costs = {}
    with directory() as datadir, inside.committing(datadir) as committer:
        (writer,) = inside.writers(committer, 1)

        def checkpoint() -> None:
            commit(committer, [writer.unsigned()])
            committer.checkpoint(writer.label, _head(committer, writer.label), inside.CLOCK)

        for size in (1_000, 10_000 * SCALE):
            while _head(committer, writer.label) < size:
                checkpoint()
            costs[size] = seconds_of(checkpoint)
    return costs


def find_leaf_costs() -> dict[int, float]:
    """The place of a leaf of the open chunk, in a log of so many entries."""
    costs = {}
    with directory() as datadir, inside.committing(datadir) as committer:
        (writer,) = inside.writers(committer, 1)
        for size in (10_000, 100_000 * SCALE):
            while (missing := size - _head(committer, writer.label)) > 0:
                last = [writer.unsigned() for _ in range(min(GROUP, missing))]
                commit(committer, last)
            reader = LogReader(datadir, sample.LIMITS)
            leaf = last[-1].leaf_hash()
            if reader.find_leaf(leaf) != [(writer.label, size)]:
                raise AssertionError(f"the leaf of entry {size} is not where it was written")
            costs[size] = seconds_of(partial(reader.find_leaf, leaf))
            reader.close()
    return costs


def route_costs() -> dict[int, float]:
    """The stream of a label, of the last of so many streams with epochs."""
    costs, profile = {}, Profile(epoch_sec=3_600)
    for size in (10, 1_000 * SCALE):
        registry = Registry(bytes(32), sample.LIMITS.max_epoch_skew_sec)
        streams = [StreamRecord(name=f"epoch/{n}", profile=profile) for n in range(size)]
        for stream in streams:
            registry.add(stream)
        label = registry.labels_of(streams[-1]).at(profile.epoch(inside.CLOCK))
        registry.route(label, inside.CLOCK)
        work = partial(_repeat, partial(registry.route, label, inside.CLOCK))
        costs[size] = seconds_of(work) / REPEATED
    return costs


def stream_costs() -> dict[str, dict[int, float]]:
    """GET of the routes that are polled, with so many streams of one message each."""
    paths = ("/healthz", "/tooling/streams")
    costs: dict[str, dict[int, float]] = {path: {} for path in paths}
    for size in (100, 3_000 * SCALE):
        with directory() as datadir:
            with inside.committing(datadir) as committer:
                _write_streams(committer.log, size)
            settings = HubSettings(admission="open", reads="open")
            http = create_app(settings, datadir).test_client()
            for path in paths:
                if http.get(path).status_code != HTTPStatus.OK:
                    raise AssertionError(f"{path} was refused")
                costs[path][size] = seconds_of(partial(http.get, path))
    return costs


def start_costs() -> dict[int, float]:
    """The start of a hub whose open chunk has so many entries and a checkpoint at its end."""
    costs = {}
    for size in (100, 10_000):
        with directory() as datadir:
            with inside.committing(datadir) as committer:
                (writer,) = inside.writers(committer, 1)
                while (missing := size - _head(committer, writer.label)) > 0:
                    commit(committer, [writer.unsigned() for _ in range(min(GROUP, missing))])
                committer.checkpoint(writer.label, size, inside.CLOCK)

            def start(datadir: DataDir = datadir) -> None:
                with inside.committing(datadir):
                    pass

            costs[size] = seconds_of(start)
    return costs


def prune_costs() -> dict[int, float]:
    """The pruning of one chunk, of a label with so many."""
    costs, limits = {}, Limits(max_checkpoint_interval=8)
    stream = StreamRecord(name=feed.STREAM, profile=DEFAULT_PROFILE)
    for size in (100, 400 * SCALE):
        with directory() as datadir:
            _write_chunks(datadir, limits, stream, size)

            rules, later = [Rule("record/*", 1)], inside.CLOCK + 10**6
            due = iter(plan_retention(datadir, rules, [stream], later))

            def prune_next(datadir: DataDir = datadir, due: Iterator[ChunkName] = due) -> None:
                prune(datadir, [next(due)], limits=limits, move_to=None, now=inside.CLOCK)

            costs[size] = seconds_of(prune_next)
    return costs


def _write_chunks(datadir: DataDir, limits: Limits, stream: StreamRecord, chunks: int) -> None:
    lock = DataDirLock(datadir)
    keys = identity.load_or_create(datadir, os.urandom, inside.CLOCK)
    log = HubLog(datadir, keys, limits, [stream])
    committer = Committer(log, inside.GATE)
    (writer,) = inside.writers(committer, 1)
    for _ in range(chunks):
        commit(committer, [writer.unsigned() for _ in range(limits.max_checkpoint_interval)])
    commit(committer, [writer.unsigned()])
    log.close()
    lock.release()


def _write_streams(log: HubLog, count: int) -> None:
    """Register streams, and write a message to each."""
    committer, routing = Committer(log, Gate(False, frozenset())), routing_key(log.keys.hub_id)
    streams = [StreamRecord(name=f"record/{n}", profile=DEFAULT_PROFILE) for n in range(count)]
    for stream in streams:
        committer.register(stream, inside.CLOCK)
    writer = feed.Writer.named(0, log.keys.hub_id)
    labels = [derive_label(routing, stream.stream_id(), 0) for stream in streams]
    msg = replace(writer.unsigned(), auth_ref=None, client_seq=1)
    commit(committer, [replace(msg, label=label) for label in labels])


def _repeat(work: Callable[[], object]) -> None:
    for _ in range(REPEATED):
        work()


def commit(committer: Committer, messages: list[Msg]) -> None:
    outcomes = committer.commit([VerifiedMsg.of(msg) for msg in messages], inside.CLOCK)
    if not all(isinstance(outcome, bytes) for outcome in outcomes):
        raise AssertionError(f"a message was refused: {outcomes[0]!r}")


def _head(committer: Committer, label: bytes) -> int:
    label_log = committer.log.label(label)
    return 0 if label_log is None else label_log.head_seq
