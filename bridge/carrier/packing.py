"""How a carrier is cut: the size of its volumes, how many share a medium, how many may be lost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from veen.errors import VeenError

MAX_VOLUMES: Final = 500
"""All of them are open at once while they are read."""
MAX_DATA_WITH_PARITY: Final = 200
MAX_PARITY: Final = 55
LEAST_VOLUME_BYTES: Final = 256
_ALL: Final = MAX_VOLUMES


class BadPacking(VeenError, ValueError):
    """Volumes that cannot be cut this way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """``volume_bytes`` is the size of a volume's file; one bag lies on one medium."""

    volume_bytes: int
    volumes_per_bag: int = _ALL
    parity: int = 0
    compress: bool = False

    def __post_init__(self) -> None:
        if self.volume_bytes < LEAST_VOLUME_BYTES:
            raise BadPacking(f"a volume has at least {LEAST_VOLUME_BYTES} bytes")
        if not 0 <= self.parity <= MAX_PARITY:
            raise BadPacking(f"{self.parity} parity volumes; at most {MAX_PARITY} can be made")
        if self.volumes_per_bag < 1:
            raise BadPacking("a bag holds at least one volume")

    def data_volumes(self, stored: int, header: int) -> int:
        """How many volumes so many bytes fill."""
        count = max(1, -(-stored // (self.volume_bytes - header)))
        most = MAX_DATA_WITH_PARITY if self.parity else MAX_VOLUMES
        if count > most:
            raise BadPacking(
                f"{stored} bytes would be {count} volumes, {most} are allowed;"
                " take larger volumes or a shorter range"
            )
        return count


class Preset(Enum):
    """(volume_bytes, volumes_per_bag) for a kind of medium, with room for its file system."""

    CD = ("cd", 720_000_000, 1)
    DVD = ("dvd", 4_290_000_000, 1)
    BD = ("bd", 4_150_000_000, 6)
    FAT32 = ("fat32", 2**32 - 1, _ALL)
    USB = ("usb", 2**30, _ALL)
    ANY = ("any", 2**40, _ALL)

    def __init__(self, title: str, volume_bytes: int, volumes_per_bag: int) -> None:
        self.title = title
        self.volume_bytes = volume_bytes
        self.volumes_per_bag = volumes_per_bag

    def packing(self, *, parity: int = 0, compress: bool = False) -> Packing:
        return Packing(
            volume_bytes=self.volume_bytes,
            volumes_per_bag=self.volumes_per_bag,
            parity=parity,
            compress=compress,
        )
