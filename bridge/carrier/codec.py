"""Codecs for a carrier's content: zstd compression, HPKE encryption, Reed-Solomon parity.

Each is deterministic: the same content gives the same bytes. Decompression is bounded by the
declared length and a maximum ratio, so that a decompression bomb is refused.

Encryption takes its key from HPKE and seals chunks of 64 KiB with XChaCha20-Poly1305. The nonce of
a chunk is its number and whether it is the last, so that no chunk can be dropped, moved or added.
The ephemeral key is derived from a secret of the exporter and a hash of the content, so that a key
and a nonce are never used for two contents, and an interrupted export produces the same bytes.

Parity is computed over GF(256), stripe by stripe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Final, Protocol, cast

import zfec
import zstandard

from bridge.carrier.format import HPKE, Encryption
from bridge.errors import CarrierFault, CarrierRefused
from veen.crypto import (
    AEAD_KEY_BYTES,
    AEAD_TAG_BYTES,
    HpkeRecipient,
    HpkeSender,
    SigningKey,
    aead_decrypt,
    aead_encrypt,
    hpke_public_key,
)
from veen.digest import h, ht, u64be
from veen.errors import Undecryptable, Untrusted

MAX_RATIO: Final = 200
_FLOOR: Final = 1 << 16
"""The plain size that is always allowed."""
_WINDOW_LOG: Final = 23
_LEVEL: Final = 9
_BLOCK: Final = 1 << 18
CHUNK: Final = 1 << 16
_KEY: Final = b"veen/agb0-carrier-k"
_FILL: Final = bytes(15)
STRIPE: Final = 1 << 16


def compress_bytes(blocks: Iterable[bytes], plain_len: int) -> Iterator[bytes]:
    """Compress a stream; another version of zstd may give other bytes."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, threads=0
    )
    running = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=plain_len)
    for block in blocks:
        yield running.compress(block)
    yield running.flush()


def verify_ratio(stored_len: int, plain_len: int) -> None:
    """Refuse an implausible declared length, before any byte is decompressed."""
    if plain_len > max(_FLOOR, stored_len * MAX_RATIO):
        raise CarrierRefused(
            CarrierFault.UNPACKED_SIZE,
            f"expected at most {MAX_RATIO} times {stored_len} bytes unpacked, got {plain_len}",
        )


def decompress_bytes(blocks: Iterable[bytes], plain_len: int) -> Iterator[bytes]:
    """Decompress a stream of exactly ``plain_len`` bytes; refused at the first byte beyond."""
    running = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
    left, source = plain_len, cast("IO[bytes]", _Blocks(blocks))
    with running.stream_reader(source, read_across_frames=True) as reader:
        while block := _read(reader):
            left -= len(block)
            if left < 0:
                raise CarrierRefused(
                    CarrierFault.UNPACKED_SIZE, f"expected {plain_len} bytes unpacked, got more"
                )
            yield block
    if left:
        raise CarrierRefused(
            CarrierFault.UNPACKED_SIZE,
            f"expected {plain_len} bytes unpacked, got {plain_len - left}",
        )


def _read(reader: zstandard.ZstdDecompressionReader) -> bytes:
    try:
        return reader.read(_BLOCK)
    except zstandard.ZstdError as error:
        raise CarrierRefused(CarrierFault.COMPRESSION, f"it cannot be unpacked: {error}") from error


class _Blocks:
    """Blocks as a readable file."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._rest = b""

    def read(self, size: int) -> bytes:
        if not self._rest:
            self._rest = next(self._blocks, b"")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


@dataclass(frozen=True, slots=True)
class Sealing:
    """The recipient of an encrypted carrier, and the exporter's secret."""

    recipient: bytes
    secret: bytes = field(repr=False)
    """32 secret bytes."""

    @classmethod
    def by(cls, signer: SigningKey, recipient: bytes) -> Sealing:
        """A sealing whose secret is derived from a signature of the exporter's key,
        deterministically.

        The signature is never published, and cannot be made without the key.
        """
        signature = signer.sign(ht("veen/agb0-seal", recipient))
        return cls(recipient, ht("veen/agb0-seal-k", signature))

    def ephemeral(self, digest: bytes) -> bytes:
        return ht("veen/agb0-ephemeral", self.secret, self.recipient, digest)


class VolumeSealer:
    """Encrypts a content, whose hash is ``digest``."""

    def __init__(self, sealing: Sealing, digest: bytes) -> None:
        sender = HpkeSender(sealing.recipient, sealing.ephemeral(digest))
        self._key = sender.export(_KEY, AEAD_KEY_BYTES)
        self.encryption = Encryption(suite=HPKE, recipient=h(sealing.recipient), enc=sender.enc)

    def seal(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        aad = self.encryption.encode()
        for number, (chunk, is_last) in enumerate(_chunks(blocks, CHUNK)):
            yield aead_encrypt(self._key, _nonce(number, is_last), aad, chunk)


def unseal(
    encryption: Encryption, privates: Sequence[bytes], blocks: Iterable[bytes]
) -> Iterator[bytes]:
    """Decrypt the chunks; CarrierRefused without a matching key or at the first invalid chunk."""
    key, aad = _key(encryption, privates), encryption.encode()
    for number, (chunk, is_last) in enumerate(_chunks(blocks, CHUNK + AEAD_TAG_BYTES)):
        try:
            yield aead_decrypt(key, _nonce(number, is_last), aad, chunk)
        except Undecryptable as error:
            raise CarrierRefused(
                CarrierFault.SEALED, f"chunk {number} cannot be decrypted: it is changed"
            ) from error


def _key(encryption: Encryption, privates: Sequence[bytes]) -> bytes:
    if encryption.suite != HPKE:
        raise CarrierRefused(
            CarrierFault.CARRIER_VERSION,
            f"unknown suite {encryption.suite!r}; a newer version of veen is needed",
        )
    private = next((p for p in privates if h(hpke_public_key(p)) == encryption.recipient), None)
    if private is None:
        raise CarrierRefused(
            CarrierFault.NO_KEY,
            f"no key here opens it; it is sealed to the key with hash {encryption.recipient.hex()}",
        )
    try:
        return HpkeRecipient(encryption.enc, private).export(_KEY, AEAD_KEY_BYTES)
    except Untrusted as error:
        raise CarrierRefused(CarrierFault.SEALED, str(error)) from error


def _nonce(number: int, is_last: bool) -> bytes:
    return u64be(number) + bytes([is_last]) + _FILL


def _chunks(blocks: Iterable[bytes], size: int) -> Iterator[tuple[bytes, bool]]:
    """The stream in chunks of one size, each with whether it is the last; at least one chunk."""
    rest = b""
    for block in blocks:
        rest += block
        while len(rest) > size:
            yield rest[:size], False
            rest = rest[size:]
    yield rest, True


class VolumePayload(Protocol):
    """Random access to the payload of a volume, with zeros beyond its end."""

    def block(self, at: int, size: int) -> bytes: ...


def encode_parity(
    data: Sequence[VolumePayload], parity: int, size: int
) -> Iterator[tuple[bytes, ...]]:
    """For each stripe of volumes of ``size`` bytes, the blocks of all parity volumes."""
    k = len(data)
    coder = zfec.Encoder(k, k + parity)
    range_ = tuple(range(k, k + parity))
    for at in range(0, size, STRIPE):
        length = min(STRIPE, size - at)
        yield tuple(coder.encode(tuple(payload.block(at, length) for payload in data), range_))


def rebuild_volumes(
    present: Mapping[int, VolumePayload], data: int, parity: int, size: int
) -> Iterator[tuple[bytes, ...]]:
    """For each stripe, the blocks of all data volumes, from any ``data`` volumes by index."""
    coder = zfec.Decoder(data, data + parity)
    chosen = sorted(present)[:data]
    for at in range(0, size, STRIPE):
        length = min(STRIPE, size - at)
        blocks = tuple(present[index].block(at, length) for index in chosen)
        yield tuple(coder.decode(blocks, tuple(chosen)))
