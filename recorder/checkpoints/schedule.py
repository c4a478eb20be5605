"""What the settings of a recorder name, opened: shelf, anchors and book.

Checkpoints and anchors as they fall due, for those who have nothing else that runs at times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recorder.anchor.anchors import Anchor, AnchorOutcome, AnchorScheduler, Refs
from recorder.anchor.ledger import AnchorLedger
from recorder.anchor.rfc3161 import BadTsa, TimeStamps, TsaLine, trust_of
from recorder.checkpoints.checkpoints import CheckpointCreated, create_checkpoint
from recorder.checkpoints.store import (
    AnchorCadence,
    CheckpointCadence,
    CheckpointDirectory,
    CheckpointStore,
    store_identity,
)
from recorder.settings import AnchorSettings, RecorderSettings
from recorder.stream_map import StrangeProfile, refuse_strange_profiles
from veen.client.session import Session
from veen.client.transport import HubRefused, Unreachable
from veen.errors import VeenError
from veen.keystore.directory import Locked
from veen.objects.port import ObjectStore, StoreUnavailable
from veen.system.durable import NoSpace
from veen.wire.api import StreamInfo

_TIMEOUT_SEC: Final = 30.0


class NoAnchoring(VeenError):
    """The settings say that nothing is anchored."""


@dataclass(frozen=True, slots=True)
class RecorderServices:
    """``random`` names new ledgers; ``objects`` is None without object storage."""

    settings: RecorderSettings
    objects: ObjectStore | None
    random: Callable[[int], bytes]

    @property
    def home(self) -> CheckpointDirectory:
        return CheckpointDirectory(self.settings.checkpoint.path)

    @property
    def cadence(self) -> CheckpointCadence:
        checkpoint = self.settings.checkpoint
        return CheckpointCadence(
            every_minutes=checkpoint.every_minutes, every_events=checkpoint.every_events
        )

    def checkpoint_store(self) -> CheckpointStore:
        return CheckpointStore(self.home, self.settings.hub.hub_id, self.objects)

    def refs(self) -> Refs:
        return Refs(self.home, self.settings.hub.hub_id, self.objects)

    def anchor(self) -> Anchor:
        result = anchor_of(self.settings.anchor, self.random)
        if result is None:
            raise NoAnchoring("anchor.kind is 'none': set it to 'file' or 'rfc3161' to anchor")
        return result

    def book(self) -> AnchorScheduler:
        every = self.settings.anchor
        cadence = AnchorCadence(
            every_checkpoints=every.every_checkpoints, every_minutes=every.every_minutes
        )
        return AnchorScheduler(self.checkpoint_store(), self.refs(), self.anchor(), cadence)

    def is_anchoring(self) -> bool:
        return self.settings.anchor.kind != "none"


def anchor_of(
    settings: AnchorSettings,
    random: Callable[[int], bytes],
    timeout_sec: float = _TIMEOUT_SEC,
) -> Anchor | None:
    """The anchor that the settings name; None for none."""
    if settings.kind == AnchorLedger.kind and settings.path is not None:
        return AnchorLedger(settings.path, random)
    if settings.kind == TimeStamps.kind and settings.tsa_url is not None:
        line = TsaLine(url=settings.tsa_url, timeout_sec=timeout_sec)
        return time_stamps(settings.tsa_certificates, settings.tsa_policy, line)
    return None


def time_stamps(certificates: tuple[Path, ...], policy: str | None, line: TsaLine) -> TimeStamps:
    pems = []
    for path in certificates:
        try:
            pems.append(path.read_bytes())
        except OSError as error:
            raise BadTsa(f"certificate {path}: {error.strerror}") from error
    return TimeStamps(trust_of(pems, policy), line.ask)


_LOG = logging.getLogger(__name__)
_RECORDED: Final = ("record/", "export/", "import/", "bridge/")
_PASSING: Final = (Unreachable, HubRefused, StoreUnavailable, Locked, NoSpace)
"""What may be over at the next turn. Whatever does not hold ends the run."""

CadenceJudge = Callable[[Sequence[StreamInfo]], None]
"""Looks at the streams of the hub, and may refuse to go on."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one look at the hub came to; ``error`` is why there is no checkpoint, if one was due."""

    reason: str | None
    created: CheckpointCreated | None
    error: VeenError | None
    anchors: tuple[AnchorOutcome, ...]


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
class CheckpointRunner:
    """``session`` opens the client anew at each turn, so that others can use it in between."""

    session: Callable[[], AbstractContextManager[Session]]
    checkpoint_store: CheckpointStore
    book: AnchorScheduler | None
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

    def turn(self, judge: CadenceJudge) -> Turn:
        reason = created = error = None
        try:
            with self.session() as session:
                reason = self._reason(session, judge)
                if reason is not None:
                    created = create_checkpoint(session, self.checkpoint_store, self.profile_id)
                    store_identity(self.checkpoint_store.home, session)
            self.checkpoint_store.settle()
        except _PASSING as failure:
            _LOG.warning("no checkpoint this time: %s", failure)
            error = failure
        return Turn(reason, created, error, self._anchors())

    def _reason(self, session: Session, judge: CadenceJudge) -> str | None:
        infos = session.api.streams()
        judge(infos)
        last = self.checkpoint_store.latest()
        root = None if last is None else last.log_root
        waited = self._last_seen.waited(root, self.steady())
        return self.cadence.due(self.clock(), last, heads(infos), waited)

    def _anchors(self) -> tuple[AnchorOutcome, ...]:
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
        info.name: max((label.last_stream_seq for label in info.labels), default=0)
        for info in infos
        if info.name.startswith(_RECORDED) and not info.epoch_sec
    }
