"""The periodic run that creates checkpoints and anchors when they are due (SDR0 3.2.4).

``RecorderServices`` opens what the settings name: the checkpoint store, the anchor and the anchor
scheduler. ``CheckpointRunner`` is for installations without a scheduler such as Airflow.
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

_LOG = logging.getLogger(__name__)

_TIMEOUT_SEC: Final = 30.0
_RECORDED_PREFIXES: Final = ("record/", "export/", "import/", "bridge/")
_TRANSIENT: Final = (Unreachable, HubRefused, StoreUnavailable, Locked, NoSpace)
"""Errors that may be gone at the next turn; a failed verification ends the run."""


class NoAnchoring(VeenError):
    """Anchoring is disabled in the settings."""


@dataclass(frozen=True, slots=True)
class RecorderServices:
    """Opens what the settings name.

    ``random`` makes ledger ids; ``objects`` is None without object storage.
    """

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
        anchor = anchor_of(self.settings.anchor, self.random)
        if anchor is None:
            raise NoAnchoring("anchor.kind is 'none': set it to 'file' or 'rfc3161' to anchor")
        return anchor

    def anchor_scheduler(self) -> AnchorScheduler:
        anchor = self.settings.anchor
        cadence = AnchorCadence(
            every_checkpoints=anchor.every_checkpoints, every_minutes=anchor.every_minutes
        )
        return AnchorScheduler(self.checkpoint_store(), self.refs(), self.anchor(), cadence)

    def is_anchoring(self) -> bool:
        return self.settings.anchor.kind != "none"


def anchor_of(
    settings: AnchorSettings,
    random: Callable[[int], bytes],
    timeout_sec: float = _TIMEOUT_SEC,
) -> Anchor | None:
    """Create the anchor that the settings name; None for kind "none"."""
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


StreamCheck = Callable[[Sequence[StreamInfo]], None]
"""Inspects the streams of the hub, and raises to end the run."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The outcome of a turn; ``error`` says why a due checkpoint is missing."""

    reason: str | None
    created: CheckpointCreated | None
    error: VeenError | None
    anchors: tuple[AnchorOutcome, ...]


@dataclass(slots=True)
class _LastSeen:
    """For how long the latest checkpoint has been the latest, by the monotonic clock."""

    root: bytes | None = None
    since: float = 0.0

    def waited(self, root: bytes | None, now: float) -> float:
        if root != self.root or root is None:
            self.root, self.since = root, now
        return now - self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRunner:
    """Creates due checkpoints and anchors.

    ``session`` opens a new client at each turn, so that other processes can use it in between.
    """

    session: Callable[[], AbstractContextManager[Session]]
    checkpoint_store: CheckpointStore
    scheduler: AnchorScheduler | None
    cadence: CheckpointCadence
    profile_id: bytes
    clock: Callable[[], int]
    steady: Callable[[], float] = time.monotonic
    _last_seen: _LastSeen = field(default_factory=_LastSeen)

    def turns(self, wait: Callable[[], bool]) -> Iterator[Turn]:
        """Run turn after turn, until ``wait`` returns true.

        A stream that checkpoints cannot cover is an error at the start. One that is added later is
        only logged, since the other streams still need their checkpoints.
        """
        yield self.turn(refuse_strange_profiles)
        while not wait():
            yield self.turn(log_strange_profiles)

    def turn(self, verify_streams: StreamCheck) -> Turn:
        reason = created = error = None
        try:
            with self.session() as session:
                reason = self._reason(session, verify_streams)
                if reason is not None:
                    created = create_checkpoint(session, self.checkpoint_store, self.profile_id)
                    store_identity(self.checkpoint_store.home, session)
            self.checkpoint_store.settle()
        except _TRANSIENT as failure:
            _LOG.warning("no checkpoint this time: %s", failure)
            error = failure
        return Turn(reason, created, error, self._anchors())

    def _reason(self, session: Session, verify_streams: StreamCheck) -> str | None:
        infos = session.api.streams()
        verify_streams(infos)
        last = self.checkpoint_store.latest()
        root = None if last is None else last.log_root
        waited = self._last_seen.waited(root, self.steady())
        return self.cadence.due(self.clock(), last, heads(infos), waited)

    def _anchors(self) -> tuple[AnchorOutcome, ...]:
        if self.scheduler is None:
            return ()
        self.scheduler.ask_when_due(self.clock())
        return tuple(self.scheduler.work(self.clock()))


def log_strange_profiles(infos: Sequence[StreamInfo]) -> None:
    try:
        refuse_strange_profiles(infos)
    except StrangeProfile as error:
        _LOG.error("%s", error)


def heads(infos: Sequence[StreamInfo]) -> dict[str, int]:
    """Return the last stream_seq of each stream that recorder checkpoints cover.

    It is stated by the hub and not verified; only the cadence depends on it.
    """
    return {
        info.name: max((label.last_stream_seq for label in info.labels), default=0)
        for info in infos
        if info.name.startswith(_RECORDED_PREFIXES) and not info.epoch_sec
    }
