"""What a carrier says of itself (``carrier.cbor``), and the signature that completes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.carrier.ledger import Ledger
from bridge.carrier.packing import MAX_VOLUMES
from bridge.carrier.volume import HEADER_BYTES
from veen import sign
from veen.digest import ht
from veen.errors import Malformed
from veen.schema import Bytes32, Bytes64, Version
from veen.version import VERSION
from veen.wire import WireArray, WireMap

ZSTD: Final = "zstd"
HPKE: Final = "X25519-HKDF-SHA256-CHACHA20POLY1305/XCHACHA20POLY1305-64K"
TOOL: Final = f"veen {VERSION}"
"""Who writes carriers here; it travels in each of them."""
FORMAT: Final = 1
"""The version of ``carrier.cbor`` that is written and read here."""
SIGNATURE_BYTES: Final = 105
"""Every ``carrier.sig`` has this length; one that is shorter was not written to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume(WireArray):
    """One line of the table: the bag it lies in, from 1, and the size and hash of its file."""

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
    """The hash of the public key it is sealed to."""
    enc: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier(WireMap):
    """The same in every bag of a set. A sealed carrier has its ledger inside the seal."""

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
    ledger: Ledger | None = None

    def rule(self) -> None:
        if not (self.data >= 1 and len(self.volumes) == self.data + self.parity <= MAX_VOLUMES):
            raise Malformed(f"a table of {len(self.volumes)} volumes, {self.data} of them data")
        if (self.ledger is None) != (self.encryption is not None):
            raise Malformed("the ledger stands in the open, or inside the seal")
        if self.ledger is not None and not self.ledger.tail:
            raise Malformed("a ledger without the entry of its own carrier")
        if {one.bag for one in self.volumes} != set(range(1, self.bags + 1)):
            raise Malformed("volumes in bags that are not there")
        self._verify_sizes()

    def _verify_sizes(self) -> None:
        sizes = [one.size - HEADER_BYTES for one in self.volumes]
        full, last = sizes[0], sizes[self.data - 1]
        if sizes != [full] * (self.data - 1) + [last] + [full] * self.parity:
            raise Malformed("volumes of sizes that do not go together")
        if not 0 < last <= full or sum(sizes[: self.data]) != self.stored_len:
            raise Malformed(f"the volumes do not hold {self.stored_len} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class CarrierSig(WireMap):
    """``carrier.sig``: the exporter's word for a whole bag, written last."""

    ver: Version = 1
    signer: Bytes32
    signature: Bytes64

    @classmethod
    def of(cls, key: sign.PrivateKey, tagmanifest: bytes) -> CarrierSig:
        return cls(signer=key.public, signature=key.sign(_digest(tagmanifest)))

    def is_valid(self, tagmanifest: bytes) -> bool:
        return sign.is_valid(self.signer, self.signature, _digest(tagmanifest))


def _digest(tagmanifest: bytes) -> bytes:
    return ht("veen/agb0-carrier", tagmanifest)
