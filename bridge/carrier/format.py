"""The wire types of a carrier: ledger, packing, volume header, ``carrier.cbor`` and its signature.

The ledger lists what a bridge has exported, each entry chained to the previous one. Its tail
travels with every carrier, so that the importing zone learns from the next carrier that one was
lost, without a channel back (AGB0 4.7).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from bridge.bundle import Header
from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht
from veen.errors import Malformed, Untrusted, VeenError
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.version import VERSION
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Bytes64, Version

TAIL: Final = 64
"""The number of entries in a carrier; earlier entries were in earlier carriers."""
NO_ENTRY: Final = bytes(32)
MAX_VOLUMES: Final = 500
"""All volumes are open at the same time while they are read."""
MAX_DATA_WITH_PARITY: Final = 200
MAX_PARITY: Final = 55
LEAST_VOLUME_BYTES: Final = 256
_ALL: Final = MAX_VOLUMES
_HEADER: Final = struct.Struct(">8s32sHHHQ32s")
_MAGIC: Final = b"AGB0VOL\x01"
HEADER_BYTES: Final = _HEADER.size
ZSTD: Final = "zstd"
HPKE: Final = "X25519-HKDF-SHA256-CHACHA20POLY1305/XCHACHA20POLY1305-64K"
TOOL: Final = f"veen {VERSION}"
"""The program that writes carriers, as named in each of them."""
FORMAT: Final = 1
"""The version of ``carrier.cbor`` that is written and read here."""
SIGNATURE_BYTES: Final = 105
"""The length of ``carrier.sig``; a shorter file was not completely written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierLedgerEntry(WireArray):
    """The entry of a carrier; without bundle_id it is a heartbeat, which has only a checkpoint."""

    n: int
    prev: Bytes32
    bundle_id: Bytes32 | None
    hub_id: Bytes32
    stream: str
    from_seq: int
    to_seq: int
    checkpoint_id: Bytes32
    created_at: int
    """When the checkpoint was made."""

    def rule(self) -> None:
        if (self.n == 1) != (self.prev == NO_ENTRY) or not self.n:
            raise Malformed(f"entry {self.n}: expected n from 1 on, and no prev only in entry 1")
        empty = (self.stream, self.from_seq, self.to_seq) == ("", 0, 0)
        if empty != (self.bundle_id is None):
            raise Malformed(f"entry {self.n}: expected a bundle with its range, or neither")

    def entry_hash(self) -> bytes:
        return ht("veen/agb0-ledger", self.encode())

    def is_of_bundle(self, header: Header) -> bool:
        mine = (self.bundle_id, self.hub_id, self.stream, self.from_seq, self.to_seq)
        return (*mine, self.checkpoint_id, self.created_at) == (
            header.bundle_id,
            header.source_hub_id,
            header.export_stream,
            header.export_seq_from,
            header.export_seq_to,
            header.export_checkpoint.checkpoint_id,
            header.export_checkpoint.created_at,
        )

    def is_of_heartbeat(self, checkpoint: RecorderCheckpoint) -> bool:
        mine = (self.bundle_id, self.hub_id, self.checkpoint_id, self.created_at)
        theirs = (None, checkpoint.hub_id, checkpoint.checkpoint_id, checkpoint.created_at)
        return mine == theirs


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierLedger(WireMap):
    """The newest entries, oldest first; the last is that of the carrier that contains it."""

    ver: Version = 1
    bridge_id: Bytes32
    tail: tuple[CarrierLedgerEntry, ...] = ()

    def rule(self) -> None:
        if len(self.tail) > TAIL:
            raise Malformed(f"the ledger: expected at most {TAIL} entries, got {len(self.tail)}")
        for old, new in pairwise(self.tail):
            if new.n != old.n + 1 or new.prev != old.entry_hash():
                raise Malformed(f"entry {new.n} of the ledger does not follow entry {old.n}")

    def with_bundle(self, header: Header) -> CarrierLedger:
        """The ledger with an entry for a bundle, which must have its id."""
        if header.bundle_id is None:
            raise Malformed("the header: expected a bundle_id, got none")
        return self._with(
            header.bundle_id,
            header.export_stream,
            header.export_seq_from,
            header.export_seq_to,
            header.export_checkpoint,
        )

    def with_heartbeat(self, checkpoint: RecorderCheckpoint) -> CarrierLedger:
        return self._with(None, "", 0, 0, checkpoint)

    def after(self, known: CarrierLedgerEntry) -> tuple[CarrierLedgerEntry, ...]:
        """The entries after ``known``, the newest known entry of this bridge.

        Entries between it and the first returned, if any, are too old for the tail. A different
        entry with the number of ``known``, or a ledger that ends before it, is Untrusted.
        """
        for entry in self.tail:
            is_other = entry.n == known.n and entry != known
            is_cut_off = entry.n == known.n + 1 and entry.prev != known.entry_hash()
            if is_other or is_cut_off:
                raise Untrusted(f"the ledger: entry {known.n} differs from the one seen before")
        if not self.tail or self.tail[-1].n < known.n:
            raise Untrusted(f"the ledger: expected entry {known.n}, seen before; it ends earlier")
        return tuple(entry for entry in self.tail if entry.n > known.n)

    def _with(
        self, bundle_id: bytes | None, stream: str, first: int, last: int, at: RecorderCheckpoint
    ) -> CarrierLedger:
        entry = CarrierLedgerEntry(
            n=self.tail[-1].n + 1 if self.tail else 1,
            prev=self.tail[-1].entry_hash() if self.tail else NO_ENTRY,
            bundle_id=bundle_id,
            hub_id=at.hub_id,
            stream=stream,
            from_seq=first,
            to_seq=last,
            checkpoint_id=at.checkpoint_id,
            created_at=at.created_at,
        )
        return CarrierLedger(bridge_id=self.bridge_id, tail=(*self.tail, entry)[-TAIL:])


class BadPacking(VeenError, ValueError):
    """A packing that is not possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How content is split into volumes and bags. ``volume_bytes`` is the size of a volume's file;
    each bag is on one medium.
    """

    volume_bytes: int
    volumes_per_bag: int = _ALL
    parity: int = 0
    compress: bool = False

    def __post_init__(self) -> None:
        if self.volume_bytes < LEAST_VOLUME_BYTES:
            raise BadPacking(f"volume size: expected at least {LEAST_VOLUME_BYTES} bytes")
        if not 0 <= self.parity <= MAX_PARITY:
            raise BadPacking(f"parity: expected at most {MAX_PARITY} volumes, got {self.parity}")
        if self.volumes_per_bag < 1:
            raise BadPacking("volumes of a bag: expected at least 1")

    def data_volumes(self, stored: int, header: int) -> int:
        """The number of data volumes for ``stored`` bytes."""
        count = max(1, -(-stored // (self.volume_bytes - header)))
        most = MAX_DATA_WITH_PARITY if self.parity else MAX_VOLUMES
        if count > most:
            raise BadPacking(
                f"expected at most {most} volumes, got {count} for {stored} bytes;"
                " choose larger volumes or a shorter range"
            )
        return count


class Preset(Enum):
    """(volume_bytes, volumes_per_bag) for a kind of medium, with space for its file system."""

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


@dataclass(frozen=True, slots=True)
class VolumeHeader:
    """The header of a volume, which identifies it whatever its file is called.

    ``index`` counts the ``data`` volumes from 0, followed by the ``parity`` volumes.
    """

    set_id: bytes
    index: int
    data: int
    parity: int
    payload_len: int
    payload_hash: bytes

    def encode(self) -> bytes:
        return _HEADER.pack(
            _MAGIC, self.set_id, self.index, self.data, self.parity,
            self.payload_len, self.payload_hash,
        )  # fmt: skip

    @classmethod
    def decode(cls, raw: bytes) -> VolumeHeader:
        if len(raw) != HEADER_BYTES or not raw.startswith(_MAGIC):
            raise Malformed(f"expected the {HEADER_BYTES} bytes of a volume header")
        return cls(*_HEADER.unpack(raw)[1:])


def volume_name(index: int, data: int) -> str:
    """v001.agv, v002.agv ... for data, p001.agv ... for parity."""
    return f"v{index + 1:03d}.agv" if index < data else f"p{index - data + 1:03d}.agv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume(WireArray):
    """A volume in the table: its bag, from 1, and the size and hash of its file."""

    bag: int
    size: int
    file_hash: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression(WireArray):
    alg: str
    plain_len: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption(WireArray):
    suite: str
    recipient: Bytes32
    """The hash of the recipient's public key."""
    enc: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier(WireMap):
    """``carrier.cbor``, the same in every bag of a set. An encrypted carrier has its ledger inside
    the encrypted content.
    """

    ver: Version = 1
    tool: str
    set_id: Bytes32
    data: int
    parity: int
    bags: int
    stored_len: int
    volumes: tuple[Volume, ...]
    compression: Compression | None = None
    encryption: Encryption | None = None
    ledger: CarrierLedger | None = None

    def rule(self) -> None:
        if not (self.data >= 1 and len(self.volumes) == self.data + self.parity <= MAX_VOLUMES):
            raise Malformed(
                f"expected {self.data} data and {self.parity} parity volumes, at most "
                f"{MAX_VOLUMES}, got {len(self.volumes)}"
            )
        if (self.ledger is None) != (self.encryption is not None):
            raise Malformed("expected a ledger here if and only if the carrier is not encrypted")
        if self.ledger is not None and not self.ledger.tail:
            raise Malformed("the ledger: expected the entry of its own carrier, got none")
        if {volume.bag for volume in self.volumes} != set(range(1, self.bags + 1)):
            raise Malformed(
                f"expected volumes in each of the bags 1 to {self.bags}, and in no other"
            )
        self._verify_sizes()

    def _verify_sizes(self) -> None:
        sizes = [volume.size - HEADER_BYTES for volume in self.volumes]
        full, last = sizes[0], sizes[self.data - 1]
        if sizes != [full] * (self.data - 1) + [last] + [full] * self.parity:
            raise Malformed("expected volumes of one size, except the last data volume")
        if not 0 < last <= full or sum(sizes[: self.data]) != self.stored_len:
            raise Malformed(
                f"expected data volumes of {self.stored_len} bytes in all, got "
                f"{sum(sizes[: self.data])}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierSig(WireMap):
    """``carrier.sig``: the exporter's signature over a complete bag, written last."""

    ver: Version = 1
    signer: Bytes32
    signature: Bytes64

    @classmethod
    def of(cls, key: SigningKey, tagmanifest: bytes) -> CarrierSig:
        return cls(signer=key.public, signature=key.sign(_digest(tagmanifest)))

    def is_valid(self, tagmanifest: bytes) -> bool:
        return signature_is_valid(self.signer, self.signature, _digest(tagmanifest))


def _digest(tagmanifest: bytes) -> bytes:
    return ht("veen/agb0-carrier", tagmanifest)
