"""A carrier sealed to the other zone: HPKE for the key, XChaCha20-Poly1305 for chunks of 64 KiB.

Each chunk's nonce holds its number and whether it is the last, so that none can be dropped, moved
or added. ``ephemeral`` is 32 fresh random bytes, used for one carrier and never again; a sealed
carrier is therefore not the same twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.carrier.carrier import HPKE, Encryption
from bridge.refusal import Fault, Refused
from veen import aead, hpke
from veen.digest import h, u64be
from veen.errors import Undecryptable, Untrusted

CHUNK: Final = 1 << 16
_KEY: Final = b"veen/agb0-carrier-k"
_FILL: Final = bytes(15)


@dataclass(frozen=True, slots=True)
class Sealing:
    """To whom a carrier is sealed."""

    recipient: bytes
    ephemeral: bytes = field(repr=False)


class Sealer:
    def __init__(self, sealing: Sealing) -> None:
        sender = hpke.Sender(sealing.recipient, sealing.ephemeral)
        self._key = sender.export(_KEY, aead.KEY_BYTES)
        self.encryption = Encryption(suite=HPKE, recipient=h(sealing.recipient), enc=sender.enc)

    def seal(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        aad = self.encryption.encode()
        for number, (chunk, is_last) in enumerate(_chunks(blocks, CHUNK)):
            yield aead.encrypt(self._key, _nonce(number, is_last), aad, chunk)


def unseal(
    encryption: Encryption, privates: Sequence[bytes], blocks: Iterable[bytes]
) -> Iterator[bytes]:
    """The chunks in the clear, for whoever holds the key; Refused at the first that is not."""
    key, aad = _key(encryption, privates), encryption.encode()
    for number, (chunk, is_last) in enumerate(_chunks(blocks, CHUNK + aead.TAG_BYTES)):
        try:
            yield aead.decrypt(key, _nonce(number, is_last), aad, chunk)
        except Undecryptable as error:
            raise Refused(Fault.SEALED, f"chunk {number} does not open") from error


def _key(encryption: Encryption, privates: Sequence[bytes]) -> bytes:
    if encryption.suite != HPKE:
        raise Refused(Fault.CARRIER_VERSION, "it is sealed in a way that needs a newer version")
    private = next((p for p in privates if h(hpke.public_key(p)) == encryption.recipient), None)
    if private is None:
        raise Refused(
            Fault.NO_KEY,
            f"it is sealed to key {encryption.recipient.hex()}; give that key to open it",
        )
    try:
        return hpke.Recipient(encryption.enc, private).export(_KEY, aead.KEY_BYTES)
    except Untrusted as error:
        raise Refused(Fault.SEALED, str(error)) from error


def _nonce(number: int, is_last: bool) -> bytes:
    return u64be(number) + bytes([is_last]) + _FILL


def _chunks(blocks: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """The stream in pieces of one size, each with whether it is the last; there is always one."""
    rest = b""
    for block in blocks:
        rest += block
        while len(rest) > size:
            yield rest[:size], False
            rest = rest[size:]
    yield rest, True
