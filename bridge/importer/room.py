"""Whether there is room for a carrier, before anything of it is copied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bridge.carrier.carrier import Carrier
from bridge.carrier.open_bag import Bag
from bridge.importer.receive import volume_bytes
from bridge.refusal import Refused
from bridge.settings_import import ImportSettings
from veen.errors import VeenError

_SPARE: Final = 16 << 20
"""For tag files, ledger and receipts."""


class NoRoom(VeenError):
    """The disk does not hold what letting a carrier in takes; nothing was copied."""


def verify_room(settings: ImportSettings, bags: Sequence[Path], copies: int) -> None:
    """Refuse with NoRoom unless the bags fit so many times, and what they hold in the clear."""
    found = os.statvfs(settings.state)
    free = found.f_bavail * found.f_frsize
    needed = copies * sum(map(volume_bytes, bags)) + _in_the_clear(bags[0], settings) + _SPARE
    if needed > free:
        raise NoRoom(
            f"letting it in takes {needed} bytes below {settings.state}, of which {free} are free; "
            "make room and run this again"
        )


def _in_the_clear(bag: Path, settings: ImportSettings) -> int:
    """What is unpacked, and what the scan is given; nothing beyond the bounds is ever unpacked."""
    carrier = _carrier(bag)
    if carrier is None:
        return 0
    plain = carrier.compression.plain_len if carrier.compression else carrier.stored_len
    is_packed = carrier.compression is not None or carrier.encryption is not None
    return min(plain, settings.limits.max_bytes) * (is_packed + bool(settings.scan))


def _carrier(bag: Path) -> Carrier | None:
    try:
        found = Bag(bag)
    except Refused:
        return None
    found.close()
    return found.carrier
