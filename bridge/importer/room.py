"""Whether there is room for a carrier, before anything of it is copied."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bridge.carrier.carrier import Carrier
from bridge.importer.signed_bag import SignedBag
from bridge.settings_import import ImportSettings
from veen.errors import VeenError


class NoRoom(VeenError):
    """The disk, or a quota, does not hold what letting a carrier in takes; nothing was copied."""


def verify_room(settings: ImportSettings, bags: Sequence[SignedBag], copies: int) -> None:
    """Refuse with NoRoom unless the bags fit so many times, and what they hold in the clear, and
    the reserve stays free.
    """
    found = os.statvfs(settings.state)
    free = found.f_bavail * found.f_frsize
    needed = copies * sum(one.size for one in bags) + _in_the_clear(bags[0].carrier, settings)
    if needed + settings.reserve_bytes > free:
        raise NoRoom(
            f"letting it in takes {needed} bytes below {settings.state}, and {free} are free, of "
            f"which reserve_bytes keeps {settings.reserve_bytes}; make room and run this again"
        )


def bytes_below(folder: Path) -> int:
    """What lies below a folder takes on disk, without following any link."""
    total, left = 0, [folder]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for one in entries:
                    status = one.stat(follow_symlinks=False)
                    total += max(status.st_size, 512 * status.st_blocks)
                    if one.is_dir(follow_symlinks=False):
                        left.append(Path(one.path))
        except FileNotFoundError:
            # Whoever brings carriers may take one away again.
            continue
    return total


def _in_the_clear(carrier: Carrier, settings: ImportSettings) -> int:
    """What is unpacked, and what the scan is given; nothing beyond the bounds is ever unpacked."""
    plain = carrier.compression.plain_len if carrier.compression else carrier.stored_len
    is_packed = carrier.compression is not None or carrier.encryption is not None
    return min(plain, settings.limits.max_bytes) * (is_packed + bool(settings.scan))
