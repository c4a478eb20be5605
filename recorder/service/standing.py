"""How the recorder stands beside its queries: its anchors, and the store that it relies on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recorder.anchor import book
from recorder.anchor.refs import Refs
from recorder.checkpoints.cadence import AnchorCadence, Lateness
from recorder.checkpoints.home import Home
from recorder.checkpoints.shelf import Shelf
from recorder.settings import Settings
from veen.objects.settings import S3Settings

_OVERWRITING: Final = (
    "[objects] accept_overwriting_store is set: of two writers at once, one can overwrite a "
    "checkpoint, an anchor or an archived chunk; veen archive status tells what the store keeps"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchoring:
    """``waiting`` are the checkpoints that no anchor covers; ``failures`` all there ever were."""

    waiting: int
    failures: int
    lateness: Lateness


def anchoring(settings: Settings, now: int) -> Anchoring | None:
    """By the directory of checkpoints on this host; None where nothing is to be anchored."""
    home, every = Home(settings.checkpoint.path), settings.anchor
    if every.kind == "none" or not home.checkpoints.is_dir():
        return None
    names = Shelf(home, settings.hub.hub_id, None).names()
    waiting = Refs(home, settings.hub.hub_id, None).after_last(names)
    cadence = AnchorCadence(
        every_checkpoints=every.every_checkpoints, every_minutes=every.every_minutes
    )
    return Anchoring(
        waiting=len(waiting),
        failures=book.failures(home).count,
        lateness=cadence.lateness(now, waiting),
    )


def accepts_overwriting(settings: Settings) -> bool:
    return isinstance(settings.objects, S3Settings) and settings.objects.accept_overwriting_store


def warnings(settings: Settings) -> list[str]:
    """What an operator has accepted, and should be reminded of."""
    return [_OVERWRITING] if accepts_overwriting(settings) else []
