"""The follower: reads recorder streams from a hub, verifies them, and writes them to the index.

Messages are decrypted in parallel with the verification of later ones, since both cost the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Final

from recorder.index.imports import ImportTurns
from recorder.index.placement import PlacementCheck
from recorder.index.proofs import check_checkpoint, learn_checkpoint
from recorder.index.tables import IndexedStream, transaction
from recorder.index.writer import EntryReader, EventReading, IndexWriter
from recorder.stream_map import NAMESPACE, RecorderStreamMap, refuse_strange_profiles
from veen.client.client import Client
from veen.client.log_head import Pair
from veen.client.transport import HubRefused, Unreachable
from veen.client.verified_read import PAGE_ITEMS
from veen.errors import Code, Untrusted, VeenError
from veen.events import IMPORT_NAMESPACE as IMPORTED
from veen.label import DEFAULT_PROFILE
from veen.limits import Limits
from veen.system.process_pool import WorkerPool, pool
from veen.wire.api import StreamInfo

_log = logging.getLogger(__name__)


FIRST_POLL_SEC: Final = 0.1
MOST_POLL_SEC: Final = 1.0
TURN_ENTRIES: Final = 20 * PAGE_ITEMS
"""How many entries of a stream are read before the next stream has its turn."""
_BATCH_BYTES: Final = 8 << 20


class BatchOpener:
    """Decrypts batches of messages, each split among the processes of a worker pool."""

    def __init__(self, reader: EntryReader, beside: WorkerPool) -> None:
        self._work = partial(_read, reader)
        self._pool = beside

    def begin(self, msgs: Sequence[bytes]) -> None:
        """Start a batch; ``finish`` must have been called for the one before."""
        share = max(1, -(-len(msgs) // self._pool.size))
        parts = [msgs[start : start + share] for start in range(0, len(msgs), share)]
        self._pool.begin(self._work, parts)

    def finish(self) -> list[EventReading]:
        """Return the readings of the batch, in order."""
        return [reading for part in self._pool.finish() for reading in part]


@contextmanager
def opening(keys: Sequence[bytes], limits: Limits, processes: int) -> Iterator[BatchOpener]:
    """Create an opener with so many worker processes; with none, it works in this process."""
    with pool(processes) as beside:
        yield BatchOpener(EntryReader(keys, limits), beside)


def _read(reader: EntryReader, msgs: Sequence[bytes]) -> list[EventReading]:
    return [reader.read(msg) for msg in msgs]


class Follower:
    """Follows the ``requested`` streams; None is every recorder stream that may be read.

    With ``streams``, events in a stream other than that of their type are reported.
    """

    def __init__(
        self,
        client: Client,
        writer: IndexWriter,
        opener: BatchOpener,
        requested: frozenset[str] | None = None,
        streams: RecorderStreamMap | None = None,
        page_items: int = PAGE_ITEMS,
    ) -> None:
        self._client = client
        self._session = client.session
        self._page_items = page_items
        self._writer = writer
        self._opener = opener
        self._requested = requested
        self._imports = ImportTurns(client, writer)
        self._placement = PlacementCheck(writer, streams) if streams is not None else None
        self._left_out: set[str] = set()
        self._is_first = True

    @property
    def import_trouble(self) -> str | None:
        return self._imports.trouble

    def run(self, is_over: Callable[[], bool]) -> None:
        """Follow until ``is_over``.

        An unreachable hub is retried; any other failure ends the run.
        """
        pause = FIRST_POLL_SEC
        while not is_over():
            try:
                count = self.round(is_over)
            except VeenError as error:
                if not _is_away(error):
                    self._note_stop(error)
                    raise
                count = self._wait(error)
            pause = FIRST_POLL_SEC if count else min(2 * pause, MOST_POLL_SEC)
            if not count and not is_over():
                self._session.runtime.sleep(pause)

    def round(self, is_over: Callable[[], bool] = lambda: False) -> int:
        """Index what is new in every stream and in the checkpoints; return how many entries."""
        self._meet()
        infos = self._session.api.streams()
        self._verify_profiles(infos)
        self._note_heads(infos)
        count = self._imports.round(infos)
        if self.import_trouble is not None:
            self._note_trouble(self.import_trouble)
        for row in self._writer.streams():
            # A head before our position is false; reading the stream exposes it.
            if self._is_own(row) and (self._is_first or row.head_seq != row.position):
                count += self._catch_up(row, is_over)
        learn_checkpoint(self._writer, self._session)
        check_checkpoint(self._writer)
        # Cleared only here, so that a follower that fails in every round always shows it.
        self._note_trouble(self.import_trouble)
        self._is_first = False
        self._check_placement()
        return count

    def _check_placement(self) -> None:
        if self._placement is not None:
            self._placement.turn()
            if self._placement.trouble is not None:
                self._note_trouble(self._placement.trouble)

    def _meet(self) -> None:
        hub_id = self._client.meet().hub.hub_id
        if hub_id != self._writer.hub_id:
            raise Untrusted(
                f"the index is of hub {self._writer.hub_id.hex()} and this is {hub_id.hex()}: "
                "give it an index of its own"
            )

    def _verify_profiles(self, infos: Sequence[StreamInfo]) -> None:
        """Only at the start; an unsupported stream that is added later is logged and skipped."""
        if self._is_first:
            refuse_strange_profiles(info for info in infos if self._is_requested(info))

    def _note_heads(self, infos: Sequence[StreamInfo]) -> None:
        """Add new streams, and store the head of each as stated by the hub."""
        rows = [
            self._writer.stream(info.name)._replace(
                head_seq=max((label.last_stream_seq for label in info.labels), default=0),
                head_ts=max((label.last_hub_ts for label in info.labels), default=0),
            )
            for info in infos
            if self._follows(info)
        ]
        with transaction(self._writer.db):
            for row in rows:
                self._writer.update(row)
            self._writer.note("asked_at", self._session.runtime.clock())

    def _is_own(self, row: IndexedStream) -> bool:
        """Whether this follower reads the stream; import streams are read separately."""
        return row.hub_id == self._writer.hub_id and not row.name.startswith(IMPORTED)

    def _is_requested(self, info: StreamInfo) -> bool:
        if self._requested is not None:
            return info.name in self._requested
        return info.name.startswith(NAMESPACE)

    def _follows(self, info: StreamInfo) -> bool:
        if not self._is_requested(info):
            return False
        if info.profile_id == DEFAULT_PROFILE.profile_id():
            return True
        if info.name not in self._left_out:
            self._left_out.add(info.name)
            _log.error("%s is not indexed: it has epochs or padding", info.name)
        return False

    def _catch_up(self, row: IndexedStream, is_over: Callable[[], bool]) -> int:
        """Index the next entries of a stream, up to the length of a turn.

        While a batch is verified, the batch before it is decrypted; verified entries are indexed
        even when the next batch fails.
        """
        start, failure = row.position, None
        pairs = self._client.read(row.name, from_seq=start + 1, to_seq=start + TURN_ENTRIES)
        previous: list[Pair] = []
        while not is_over():
            batch, failure = _batch(pairs, self._page_items)
            readings = self._opener.finish() if previous else []
            if batch:
                self._opener.begin([pair.msg.encode() for pair in batch])
            row = self._indexed(row, previous, readings)
            previous = batch
            if failure is not None or not batch:
                break
        if previous:
            row = self._indexed(row, previous, self._opener.finish())
        if failure is not None:
            raise failure
        return row.position - start

    def _indexed(
        self, row: IndexedStream, pairs: Sequence[Pair], readings: Sequence[EventReading]
    ) -> IndexedStream:
        return self._writer.append(row, pairs, readings) if pairs else row

    def _wait(self, error: VeenError) -> int:
        _log.warning("%s; the index waits for the hub", error)
        self._note_trouble(f"waiting: {error}")
        return 0

    def _note_stop(self, error: VeenError) -> None:
        _log.critical("%s; the index is not followed until it is started again", error)
        # On a full disk the note is lost, but the status shows that the hub is no longer asked.
        with suppress(VeenError):
            self._note_trouble(f"stopped: {error}")

    def _note_trouble(self, trouble: str | None) -> None:
        with transaction(self._writer.db):
            self._writer.note("trouble", trouble)


def _is_away(error: VeenError) -> bool:
    """Whether the hub does not answer, or is temporarily unavailable."""
    if isinstance(error, HubRefused):
        return error.code == Code.UNAVAILABLE.value
    return isinstance(error, Unreachable)


def _batch(pairs: Iterator[Pair], most: int) -> tuple[list[Pair], VeenError | None]:
    """Return the next verified pairs, limited by count and bytes, and the error that ended them."""
    batch: list[Pair] = []
    size = 0
    try:
        for pair in islice(pairs, most):
            batch.append(pair)
            size += len(pair.msg.ciphertext)
            if size >= _BATCH_BYTES:
                break
    except VeenError as error:
        return batch, error
    return batch, None
