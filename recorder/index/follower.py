"""The follower: reads recorder streams of a hub, verified, and brings them into the index."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from recorder.index import checkpoints
from recorder.index.imports import ImportTurns
from recorder.index.opener import Opener
from recorder.index.placement import PlacementCheck
from recorder.index.reading import Reading
from recorder.index.tables import StreamRow, transaction
from recorder.index.writer import IndexWriter
from recorder.stream_map import NAMESPACE, StreamMap, refuse_strange_profiles
from veen.client.client import Client
from veen.client.errors import HubRefused, Unreachable
from veen.client.pages import PAGE_ITEMS
from veen.client.pair import Pair
from veen.errors import Code, Untrusted, VeenError
from veen.import_event import NAMESPACE as IMPORTED
from veen.profile import DEFAULT_PROFILE
from veen.tooling import StreamInfo

FIRST_POLL_SEC: Final = 0.1
MOST_POLL_SEC: Final = 1.0
TURN_ENTRIES: Final = 20 * PAGE_ITEMS
"""How much of one stream is read before the next has its turn."""

_BATCH_BYTES: Final = 8 << 20
_log = logging.getLogger(__name__)


class Follower:
    """``wanted`` are the streams to follow; None is all of the recorder that may be read.

    With ``streams``, events of types that belong to other streams are found and told of.
    """

    def __init__(
        self,
        client: Client,
        writer: IndexWriter,
        opener: Opener,
        wanted: frozenset[str] | None = None,
        streams: StreamMap | None = None,
    ) -> None:
        self._client = client
        self._session = client.session
        self._writer = writer
        self._opener = opener
        self._wanted = wanted
        self._imports = ImportTurns(client, writer)
        self._placement = PlacementCheck(writer, streams) if streams is not None else None
        self._left_out: set[str] = set()
        self._is_first = True

    @property
    def import_trouble(self) -> str | None:
        return self._imports.trouble

    def run(self, is_over: Callable[[], bool]) -> None:
        """Follow until it is over. A hub that is down is waited for; any other failure ends it."""
        pause = FIRST_POLL_SEC
        while not is_over():
            try:
                found = self.round(is_over)
            except VeenError as error:
                if not _is_away(error):
                    self._note_stop(error)
                    raise
                found = self._wait(error)
            pause = FIRST_POLL_SEC if found else min(2 * pause, MOST_POLL_SEC)
            if not found and not is_over():
                self._session.surroundings.sleep(pause)

    def round(self, is_over: Callable[[], bool] = lambda: False) -> int:
        """One look at every stream and at the checkpoints; how many entries were indexed."""
        self._meet()
        infos = self._session.api.streams()
        self._refuse_strange(infos)
        self._note_heads(infos)
        found = self._imports.round(infos)
        if self.import_trouble is not None:
            self._note_trouble(self.import_trouble)
        for row in self._writer.streams():
            # An end before ours is a lie that reading brings to light.
            if self._is_own(row) and (self._is_first or row.head_seq != row.position):
                found += self._catch_up(row, is_over)
        checkpoints.learn(self._writer, self._session)
        checkpoints.check(self._writer)
        # Only now: a follower that fails in every round is never without trouble.
        self._note_trouble(self.import_trouble)
        self._is_first = False
        self._judge_places()
        return found

    def _judge_places(self) -> None:
        if self._placement is not None:
            self._placement.turn()
            if self._placement.trouble is not None:
                self._note_trouble(self._placement.trouble)

    def _meet(self) -> None:
        found = self._client.meet().hub.hub_id
        if found != self._writer.hub_id:
            raise Untrusted(
                f"the index is of hub {self._writer.hub_id.hex()} and this is {found.hex()}: "
                "give it an index of its own"
            )

    def _refuse_strange(self, infos: Sequence[StreamInfo]) -> None:
        """At the start. One that comes later is told of, and does not hold up the others."""
        if self._is_first:
            refuse_strange_profiles(one for one in infos if self._wants(one))

    def _note_heads(self, infos: Sequence[StreamInfo]) -> None:
        """Take in new streams, and how far each goes by what the hub says."""
        rows = [
            self._writer.stream(one.name)._replace(
                head_seq=max((label.last_stream_seq for label in one.labels), default=0),
                head_ts=max((label.last_hub_ts for label in one.labels), default=0),
            )
            for one in infos
            if self._follows(one)
        ]
        with transaction(self._writer.db):
            for row in rows:
                self._writer.update(row)
            self._writer.note("asked_at", self._session.surroundings.clock())

    def _is_own(self, row: StreamRow) -> bool:
        """Whether this follower reads the stream; import streams have turns of their own."""
        return row.hub_id == self._writer.hub_id and not row.name.startswith(IMPORTED)

    def _wants(self, info: StreamInfo) -> bool:
        if self._wanted is not None:
            return info.name in self._wanted
        return info.name.startswith(NAMESPACE)

    def _follows(self, info: StreamInfo) -> bool:
        if not self._wants(info):
            return False
        if info.profile_id == DEFAULT_PROFILE.profile_id():
            return True
        if info.name not in self._left_out:
            self._left_out.add(info.name)
            _log.error("%s is not indexed: it has epochs or padding", info.name)
        return False

    def _catch_up(self, row: StreamRow, is_over: Callable[[], bool]) -> int:
        """Index what one stream has beyond our place, for the length of a turn.

        While a batch is verified, the one before is opened; what was verified is indexed, even
        when the next batch cannot be had.
        """
        start, failure = row.position, None
        pairs = self._client.read(row.name, from_seq=start + 1, to_seq=start + TURN_ENTRIES)
        before: list[Pair] = []
        while not is_over():
            batch, failure = _batch(pairs)
            readings = self._opener.finish() if before else []
            if batch:
                self._opener.begin([pair.msg.encode() for pair in batch])
            row = self._indexed(row, before, readings)
            before = batch
            if failure is not None or not batch:
                break
        if before:
            row = self._indexed(row, before, self._opener.finish())
        if failure is not None:
            raise failure
        return row.position - start

    def _indexed(
        self, row: StreamRow, pairs: Sequence[Pair], readings: Sequence[Reading]
    ) -> StreamRow:
        return self._writer.append(row, pairs, readings) if pairs else row

    def _wait(self, error: VeenError) -> int:
        _log.warning("%s; the index waits for the hub", error)
        self._note_trouble(f"waiting: {error}")
        return 0

    def _note_stop(self, error: VeenError) -> None:
        _log.critical("%s; the index is not followed until it is started again", error)
        # Where there is no room for the note, its reader sees that the hub is not asked any more.
        with suppress(VeenError):
            self._note_trouble(f"stopped: {error}")

    def _note_trouble(self, told: str | None) -> None:
        with transaction(self._writer.db):
            self._writer.note("trouble", told)


def _is_away(error: VeenError) -> bool:
    """Whether the hub does not answer, or says that it cannot for now."""
    if isinstance(error, HubRefused):
        return error.code == Code.UNAVAILABLE.value
    return isinstance(error, Unreachable)


def _batch(pairs: Iterator[Pair]) -> tuple[list[Pair], VeenError | None]:
    """The next verified pairs, at most a page and not many bytes; or why there are none."""
    found: list[Pair] = []
    size = 0
    try:
        for pair in islice(pairs, PAGE_ITEMS):
            found.append(pair)
            size += len(pair.msg.ciphertext)
            if size >= _BATCH_BYTES:
                break
    except VeenError as error:
        return found, error
    return found, None
