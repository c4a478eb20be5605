"""What the settings of a recorder name, opened: shelf, anchors and book."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recorder.anchor.book import Book
from recorder.anchor.ledger import Ledger
from recorder.anchor.port import Anchor
from recorder.anchor.refs import Refs
from recorder.anchor.rfc3161 import TimeStamps
from recorder.anchor.tsa import BadTsa, trust_of
from recorder.anchor.tsa_line import TsaLine
from recorder.checkpoints.cadence import AnchorCadence, CheckpointCadence
from recorder.checkpoints.home import Home
from recorder.checkpoints.shelf import Shelf
from recorder.settings import Settings
from recorder.settings_anchor import AnchorSettings
from veen.errors import VeenError
from veen.objects.port import ObjectStore

_TIMEOUT_SEC: Final = 30.0


class NoAnchoring(VeenError):
    """The settings say that nothing is anchored."""


@dataclass(frozen=True, slots=True)
class Door:
    """``random`` names new ledgers; ``objects`` is None without object storage."""

    settings: Settings
    objects: ObjectStore | None
    random: Callable[[int], bytes]

    @property
    def home(self) -> Home:
        return Home(self.settings.checkpoint.path)

    @property
    def cadence(self) -> CheckpointCadence:
        found = self.settings.checkpoint
        return CheckpointCadence(every_minutes=found.every_minutes, every_events=found.every_events)

    def shelf(self) -> Shelf:
        return Shelf(self.home, self.settings.hub.hub_id, self.objects)

    def refs(self) -> Refs:
        return Refs(self.home, self.settings.hub.hub_id, self.objects)

    def anchor(self) -> Anchor:
        found = anchor_of(self.settings.anchor, self.random)
        if found is None:
            raise NoAnchoring("anchor.kind is 'none': set it to 'file' or 'rfc3161' to anchor")
        return found

    def book(self) -> Book:
        every = self.settings.anchor
        cadence = AnchorCadence(
            every_checkpoints=every.every_checkpoints, every_minutes=every.every_minutes
        )
        return Book(self.shelf(), self.refs(), self.anchor(), cadence)

    def is_anchoring(self) -> bool:
        return self.settings.anchor.kind != "none"


def anchor_of(
    settings: AnchorSettings,
    random: Callable[[int], bytes],
    timeout_sec: float = _TIMEOUT_SEC,
) -> Anchor | None:
    """The anchor that the settings name; None for none."""
    if settings.kind == Ledger.kind and settings.path is not None:
        return Ledger(settings.path, random)
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
