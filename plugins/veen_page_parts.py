"""The parts of a zone by what their supervisor has written down: which of them do not work."""

from __future__ import annotations

from dataclasses import dataclass

from veen_page_zone import Place, reading

from veen.zone_parts import FILE, ZonePart, decode


@dataclass(frozen=True, slots=True)
class Parts:
    """``wrong`` are those that do not work now, ``restarted`` those that do again."""

    wrong: tuple[ZonePart, ...]
    restarted: tuple[ZonePart, ...]


def parts(place: Place) -> Parts | None:
    """None in a zone that no supervisor runs, as in containers: there others restart them."""
    file = place.folder / FILE
    with reading("the state of the supervisor"):
        if not file.exists():
            return None
        found = decode(file.read_bytes())
    return Parts(
        tuple(one for one in found if not one.is_ready),
        tuple(one for one in found if one.is_ready and one.restarts),
    )
