"""Checkpoints and anchors as they fall due, for those who have nothing else that runs at times."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from recorder.anchor.book import Book, Outcome
from recorder.checkpoints import hub_papers
from recorder.checkpoints.cadence import CheckpointCadence
from recorder.checkpoints.create import Created, create
from recorder.checkpoints.shelf import Shelf
from veen.client.errors import HubRefused, Unreachable
from veen.client.session import Session
from veen.durable import NoSpace
from veen.errors import VeenError
from veen.keystore.directory import Locked
from veen.objects.port import StoreUnavailable

_LOG = logging.getLogger(__name__)
_RECORDED: Final = ("record/", "export/", "import/", "bridge/")
_PASSING: Final = (Unreachable, HubRefused, StoreUnavailable, Locked, NoSpace)
"""What may be over at the next turn. Whatever does not hold ends the run."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one look at the hub came to; ``error`` is why there is no checkpoint, if one was due."""

    reason: str | None
    created: Created | None
    error: VeenError | None
    anchors: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """``session`` opens the client anew at each turn, so that others can use it in between."""

    session: Callable[[], AbstractContextManager[Session]]
    shelf: Shelf
    book: Book | None
    cadence: CheckpointCadence
    profile_id: bytes
    clock: Callable[[], int]

    def turns(self, wait: Callable[[], bool]) -> Iterator[Turn]:
        """Turn after turn, until ``wait`` says that it is time to stop."""
        yield self.turn()
        while not wait():
            yield self.turn()

    def turn(self) -> Turn:
        reason = created = error = None
        try:
            with self.session() as session:
                reason = self._reason(session)
                if reason is not None:
                    created = create(session, self.shelf, self.profile_id)
                    hub_papers.keep(self.shelf.home, session)
            self.shelf.settle()
        except _PASSING as failure:
            _LOG.warning("no checkpoint this time: %s", failure)
            error = failure
        return Turn(reason, created, error, self._anchors())

    def _reason(self, session: Session) -> str | None:
        return self.cadence.due(self.clock(), self.shelf.latest(), heads(session))

    def _anchors(self) -> tuple[Outcome, ...]:
        if self.book is None:
            return ()
        self.book.ask_when_due(self.clock())
        return tuple(self.book.work(self.clock()))


def heads(session: Session) -> dict[str, int]:
    """The last stream_seq of each stream that a recorder checkpoint speaks of.

    The hub says so, and nothing rests on it but the cadence.
    """
    return {
        one.name: max((label.last_stream_seq for label in one.labels), default=0)
        for one in session.api.streams()
        if one.name.startswith(_RECORDED) and not one.epoch_sec
    }
