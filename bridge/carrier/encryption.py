"""A carrier sealed to the other zone: HPKE for the key, XChaCha20-Poly1305 for chunks of 64 KiB.

Each chunk's nonce holds its number and whether it is the last, so that none can be dropped, moved
or added. A key and a nonce are never used for two contents: the ephemeral key comes from a secret
of the exporter and a hash of what is sealed. So the same content gives the same bytes again, and an
export that was cut off finds what it had begun; other content gives another key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.carrier.carrier import HPKE, Encryption
from bridge.refusal import Fault, Refused
from veen import aead, hpke, sign
from veen.digest import h, ht, u64be
from veen.errors import Undecryptable, Untrusted

CHUNK: Final = 1 << 16
_KEY: Final = b"veen/agb0-carrier-k"
_FILL: Final = bytes(15)


@dataclass(frozen=True, slots=True)
class Sealing:
    """To whom a carrier is sealed, and by whom."""

    recipient: bytes
    secret: bytes = field(repr=False)
    """32 bytes that nobody else knows."""

    @classmethod
    def by(cls, signer: sign.PrivateKey, recipient: bytes) -> Sealing:
        """With a secret that the exporter's key alone gives, each time the same.

        The signature it is made of is never shown, and nobody without the key can make it.
        """
        signature = signer.sign(ht("veen/agb0-seal", recipient))
        return cls(recipient, ht("veen/agb0-seal-k", signature))

    def ephemeral(self, digest: bytes) -> bytes:
        return ht("veen/agb0-ephemeral", self.secret, self.recipient, digest)


class Sealer:
    """``digest`` is the hash of all that is going to be sealed."""

    def __init__(self, sealing: Sealing, digest: bytes) -> None:
        sender = hpke.Sender(sealing.recipient, sealing.ephemeral(digest))
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
            Fault.NO_KEY, f"it is sealed to the key whose hash is {encryption.recipient.hex()}"
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
