"""Checkpoints and anchors as they fall due, for those who have nothing else that runs at times."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from recorder.anchor.book import Book, Outcome
from recorder.checkpoints import hub_papers
from recorder.checkpoints.cadence import CheckpointCadence
from recorder.checkpoints.create import Created, create
from recorder.checkpoints.shelf import Shelf
from recorder.stream_map import StrangeProfile, refuse_strange_profiles
from veen.client.errors import HubRefused, Unreachable
from veen.client.session import Session
from veen.durable import NoSpace
from veen.errors import VeenError
from veen.keystore.directory import Locked
from veen.objects.port import StoreUnavailable
from veen.tooling import StreamInfo

_LOG = logging.getLogger(__name__)
_RECORDED: Final = ("record/", "export/", "import/", "bridge/")
_PASSING: Final = (Unreachable, HubRefused, StoreUnavailable, Locked, NoSpace)
"""What may be over at the next turn. Whatever does not hold ends the run."""

Judge = Callable[[Sequence[StreamInfo]], None]
"""Looks at the streams of the hub, and may refuse to go on."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one look at the hub came to; ``error`` is why there is no checkpoint, if one was due."""

    reason: str | None
    created: Created | None
    error: VeenError | None
    anchors: tuple[Outcome, ...]


@dataclass(slots=True)
class _LastSeen:
    """Since when the latest checkpoint is the latest, by a clock that nobody sets."""

    root: bytes | None = None
    since: float = 0.0

    def waited(self, root: bytes | None, now: float) -> float:
        if root != self.root or root is None:
            self.root, self.since = root, now
        return now - self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """``session`` opens the client anew at each turn, so that others can use it in between."""

    session: Callable[[], AbstractContextManager[Session]]
    shelf: Shelf
    book: Book | None
    cadence: CheckpointCadence
    profile_id: bytes
    clock: Callable[[], int]
    steady: Callable[[], float] = time.monotonic
    _last_seen: _LastSeen = field(default_factory=_LastSeen)

    def turns(self, wait: Callable[[], bool]) -> Iterator[Turn]:
        """Turn after turn, until ``wait`` says that it is time to stop.

        A stream that checkpoints cannot speak of is refused at the start; one that comes later is
        told of each time, for the others need their checkpoints all the same.
        """
        yield self.turn(refuse_strange_profiles)
        while not wait():
            yield self.turn(tell_strange_profiles)

    def turn(self, judge: Judge) -> Turn:
        reason = created = error = None
        try:
            with self.session() as session:
                reason = self._reason(session, judge)
                if reason is not None:
                    created = create(session, self.shelf, self.profile_id)
                    hub_papers.keep(self.shelf.home, session)
            self.shelf.settle()
        except _PASSING as failure:
            _LOG.warning("no checkpoint this time: %s", failure)
            error = failure
        return Turn(reason, created, error, self._anchors())

    def _reason(self, session: Session, judge: Judge) -> str | None:
        infos = session.api.streams()
        judge(infos)
        last = self.shelf.latest()
        root = None if last is None else last.log_root
        waited = self._last_seen.waited(root, self.steady())
        return self.cadence.due(self.clock(), last, heads(infos), waited)

    def _anchors(self) -> tuple[Outcome, ...]:
        if self.book is None:
            return ()
        self.book.ask_when_due(self.clock())
        return tuple(self.book.work(self.clock()))


def tell_strange_profiles(infos: Sequence[StreamInfo]) -> None:
    try:
        refuse_strange_profiles(infos)
    except StrangeProfile as error:
        _LOG.error("%s", error)


def heads(infos: Sequence[StreamInfo]) -> dict[str, int]:
    """The last stream_seq of each stream that a recorder checkpoint speaks of.

    The hub says so, and nothing rests on it but the cadence.
    """
    return {
        one.name: max((label.last_stream_seq for label in one.labels), default=0)
        for one in infos
        if one.name.startswith(_RECORDED) and not one.epoch_sec
    }
