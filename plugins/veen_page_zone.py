"""The zone that this Airflow runs for, as its page reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge import settings as bridge_settings
from bridge.importer.airlock import Airlock
from recorder import settings as recorder_settings
from recorder import zone as zones
from recorder.zone import Zone
from veen.errors import VeenError


class NoZone(VeenError):
    """The environment does not say which zone this is."""


class Unreadable(VeenError):
    """A part of the page of which nothing can be told, and why."""


@dataclass(frozen=True, slots=True)
class Place:
    """``bridge`` is None in a zone that is alone."""

    zone: Zone
    recorder: recorder_settings.Settings
    bridge: bridge_settings.Settings | None

    @property
    def folder(self) -> Path:
        return self.zone.folder

    def airlock(self) -> Airlock | None:
        """Where carriers come in; None where none do, or none came yet."""
        importing = self.bridge.importing if self.bridge else None
        found = Airlock(importing.state) if importing else None
        return found if found and found.ledger.exists() else None


def opened(environ: Mapping[str, str]) -> Place:
    """Read anew for every request: small files, and nothing is kept that could be old."""
    file = environ.get(zones.VARIABLE)
    if not file:
        raise NoZone(f"{zones.VARIABLE} is not set: name the veen.toml of this zone in it")
    zone = zones.load(Path(file))
    bridge = None if zone.role == zones.ALONE else bridge_settings.load(zone.file)
    return Place(zone, recorder_settings.load(zone.file), bridge)


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """What cannot be read is told in its own part of the page, and the others are shown."""
    try:
        yield
    except OSError as error:
        raise Unreadable(f"{what} cannot be read: {error}") from error
