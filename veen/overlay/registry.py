"""The overlays by name. A new one is one file, its import here and its line in the tuple."""

from __future__ import annotations

from typing import Any, Final

from veen.errors import VeenError
from veen.overlay.gcounter import GrowOnlyCounter
from veen.overlay.ledger import Ledger
from veen.overlay.lww import LastWriterWins
from veen.overlay.orset import ObservedRemoveSet
from veen.overlay.overlay import Overlay
from veen.overlay.statistics import RecorderStatistics


class UnknownOverlay(VeenError, LookupError):
    """No overlay has this name."""


OVERLAYS: Final[tuple[Overlay[Any], ...]] = (
    GrowOnlyCounter(),
    LastWriterWins(),
    Ledger(),
    ObservedRemoveSet(),
    RecorderStatistics(),
)
_BY_NAME: Final = {overlay.name: overlay for overlay in OVERLAYS}


def overlay_named(name: str) -> Overlay[Any]:
    if name not in _BY_NAME:
        raise UnknownOverlay(f"no overlay is named {name!r}; there are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
