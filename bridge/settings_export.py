"""The settings of the exporting side: where carriers are built, and how they are cut."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.carrier.packing import LEAST_VOLUME_BYTES, MAX_PARITY, MAX_VOLUMES, Packing, Preset
from veen.settings_table import Table

DEFAULT_BUNDLE_BYTES: Final = 64 << 20
DEFAULT_BUNDLE_EVENTS: Final = 100_000
MOST_BUNDLE_BYTES: Final = 1 << 34
MOST_BUNDLE_EVENTS: Final = 1 << 24
_COMPRESSIONS: Final = ("none", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """``state`` is private to the exporter: its lock, what it is building, what it has seen.

    ``recipient`` is the public key of the other zone, for carriers that only it can open.
    """

    state: Path
    packing: Packing
    recipient: bytes | None
    max_bundle_bytes: int
    max_bundle_events: int


def export_settings(table: Table) -> ExportSettings:
    found = ExportSettings(
        state=table.path("state", "export"),
        packing=_packing(table),
        recipient=table.key("recipient", None),
        max_bundle_bytes=table.number(
            "max_bundle_bytes", DEFAULT_BUNDLE_BYTES, least=1, most=MOST_BUNDLE_BYTES
        ),
        max_bundle_events=table.number(
            "max_bundle_events", DEFAULT_BUNDLE_EVENTS, least=1, most=MOST_BUNDLE_EVENTS
        ),
    )
    table.done()
    return found


def _packing(table: Table) -> Packing:
    """That of a preset; a size of volumes beside it holds instead of the preset's."""
    titles = [one.title for one in Preset]
    chosen = table.choice("medium", titles, Preset.ANY.title)
    preset = next(one for one in Preset if one.title == chosen)
    return Packing(
        volume_bytes=table.number(
            "volume_bytes", preset.volume_bytes, least=LEAST_VOLUME_BYTES, most=2**40
        ),
        volumes_per_bag=table.number(
            "volumes_per_medium", preset.volumes_per_bag, least=1, most=MAX_VOLUMES
        ),
        parity=table.number("parity", 0, least=0, most=MAX_PARITY),
        compress=table.choice("compression", _COMPRESSIONS, "none") == "zstd",
    )
