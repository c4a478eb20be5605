"""A carrier's content, read from the bags of one or more media (AGB0 4.5).

Volumes are collected from all bags, hashed, rebuilt from parity where they are lost or damaged,
then decrypted and decompressed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, NamedTuple, Self

from bridge.bundle import BundleLimits
from bridge.carrier.bag import Bag, OpenVolume, volume_path
from bridge.carrier.codec import decompress_bytes, rebuild_volumes, unseal, verify_ratio
from bridge.carrier.directory import BagPath, name_in_text
from bridge.carrier.format import HEADER_BYTES, ZSTD, Carrier, CarrierLedger, VolumeHeader
from bridge.errors import CarrierFault, CarrierRefused
from bridge.trust import TrustStore
from veen.digest import Hasher, h_blocks
from veen.errors import Malformed
from veen.system.environment import Progress, ProgressCounter, Watch, no_progress_watch
from veen.wire import cbor

BLOCK: Final = 1 << 20
_MAX_LEDGER: Final = 1 << 18


class SpanPiece(NamedTuple):
    fd: int
    start: int
    size: int


class ContentSpan:
    """Part of one or more open files, read as a single file.

    Reads by offset and never moves a file's own position, so that spans may share files.
    """

    def __init__(self, pieces: Iterable[SpanPiece]) -> None:
        self.pieces = tuple(piece for piece in pieces if piece.size)
        self._starts = [0]
        for piece in self.pieces:
            self._starts.append(self._starts[-1] + piece.size)
        self.size = self._starts[-1]
        self._at = 0

    @classmethod
    def of_file(cls, file: BinaryIO) -> ContentSpan:
        return cls([SpanPiece(file.fileno(), 0, os.fstat(file.fileno()).st_size)])

    def part(self, start: int, size: int) -> ContentSpan:
        """The part from ``start`` on, of at most ``size`` bytes."""
        end = min(start + size, self.size)
        return ContentSpan(
            SpanPiece(
                piece.fd, piece.start + max(0, start - begin), min(end, stop) - max(start, begin)
            )
            for piece, begin, stop in zip(self.pieces, self._starts, self._starts[1:], strict=False)
            if begin < end and stop > start
        )

    def blocks(self) -> Iterator[bytes]:
        at = 0
        while block := self._read_at(at, BLOCK):
            yield block
            at += len(block)

    def block(self, at: int, size: int) -> bytes:
        """``size`` bytes, with zeros beyond the end."""
        return self._read_at(at, size).ljust(size, b"\x00")

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        taken = self._read_at(self._at, self.size if size < 0 else size)
        self._at += len(taken)
        return taken

    def _read_at(self, at: int, size: int) -> bytes:
        parts = []
        size = min(size, self.size - at)
        while size > 0:
            number = bisect_right(self._starts, at) - 1
            piece, inside = self.pieces[number], at - self._starts[number]
            raw = os.pread(piece.fd, min(size, piece.size - inside), piece.start + inside)
            if not raw:
                break
            parts.append(raw)
            at, size = at + len(raw), size - len(raw)
        return b"".join(parts)


def copy_blocks(blocks: Iterable[bytes], out: BinaryIO) -> None:
    out.writelines(blocks)


class Damage(NamedTuple):
    """What is wrong with a volume, and the offset, as far as its hashes show it."""

    detail: str
    offset: int | None = None


def verify_hash(
    volume: OpenVolume, expected: bytes, carrier: Carrier, count: ProgressCounter
) -> Damage | None:
    """The damage of a volume whose hash should be ``expected``; None if it is."""
    digest, at = Hasher(), 0
    try:
        while block := os.pread(volume.fd, min(BLOCK, volume.size - at), at):
            digest.update(block)
            count.add(len(block))
            at += len(block)
        return None if digest.digest() == expected else _locate(volume, expected, carrier)
    except OSError as error:
        # A bad sector, or a medium that is gone.
        return Damage(f"cannot be read from byte {at} on: {error.strerror}", at)


def _locate(volume: OpenVolume, expected: bytes, carrier: Carrier) -> Damage:
    size = volume.size - HEADER_BYTES
    payload = ContentSpan([SpanPiece(volume.fd, HEADER_BYTES, size)])
    header = header_of(carrier, volume.header.index, size, h_blocks(payload.blocks()))
    # If the hash holds with a header derived from the payload, only the header is damaged.
    whole = Hasher()
    for block in chain([header], payload.blocks()):
        whole.update(block)
    if whole.digest() != expected:
        return Damage(f"is changed between byte {HEADER_BYTES} and its end at {volume.size}")
    pairs = zip(header, os.pread(volume.fd, HEADER_BYTES, 0), strict=True)
    at = next(number for number, (mine, theirs) in enumerate(pairs) if mine != theirs)
    return Damage(f"is changed at byte {at}, in its header", at)


def header_of(carrier: Carrier, index: int, size: int, digest: bytes) -> bytes:
    """The encoded header of a volume with such a payload in this carrier."""
    header = VolumeHeader(carrier.set_id, index, carrier.data, carrier.parity, size, digest)
    return header.encode()


class CarrierSet:
    """The bags of one carrier, from one medium or several.

    Checks run in the order of the methods; each raises CarrierRefused.
    """

    def __init__(self, roots: Sequence[Path | BagPath]) -> None:
        self._stack = ExitStack()
        self._bags: list[Bag] = []
        self._good: dict[int, ContentSpan] = {}
        self._present: dict[int, list[OpenVolume]] = {}
        self.notes: list[str] = []
        try:
            for root in roots:
                self._add(root)
        except BaseException:
            self.close()
            raise
        if not self._bags:
            raise CarrierRefused(CarrierFault.INCOMPLETE, "expected one or more bags, got none")
        self.carrier: Carrier = self._bags[0].carrier

    def _add(self, root: Path | BagPath) -> None:
        bag = Bag(root)
        self._stack.callback(bag.close)
        if self._bags and bag.carrier != self._bags[0].carrier:
            self.notes.append(f"bag {name_in_text(root.name)}: of another carrier; ignored")
        else:
            self._bags.append(bag)

    def verify_signatures(self, trust: TrustStore) -> str:
        """The name of the exporter who signed every bag."""
        signers = {bag.signer() for bag in self._bags}
        unknown = signers - trust.exporters.keys()
        if unknown:
            why = trust.revoked.get(min(unknown))
            what = "not an exporter's key in the trust store" if why is None else f"revoked: {why}"
            raise CarrierRefused(
                CarrierFault.SIGNER, f"signed by {min(unknown).hex()}, which is {what}"
            )
        return ", ".join(sorted(trust.exporters[signer] for signer in signers))

    def verify_complete(self) -> None:
        """Refuse if more volumes are missing, or of a wrong size, than parity can rebuild."""
        for bag in self._bags:
            for volume in bag.volumes():
                self._present.setdefault(volume.header.index, []).append(volume)
            self.notes += bag.notes
        lost = []
        for index, listed in enumerate(self.carrier.volumes):
            copies = [copy for copy in self._present.get(index, ()) if copy.size == listed.size]
            if not copies:
                lost.append(self._lost(index))
            self._present[index] = copies
        self._verify_recoverable(lost, CarrierFault.INCOMPLETE)

    def verify_intact(self, watch: Watch = no_progress_watch) -> None:
        """Refuse if more volumes are missing or damaged than parity can rebuild."""
        bad: dict[int, Damage] = {}
        with watch("hashing volumes", "bytes") as progress:
            count = ProgressCounter(
                sum(volume.size for copies in self._present.values() for volume in copies), progress
            )
            for index in range(len(self.carrier.volumes)):
                damage = self._damage(index, count)
                if damage is not None:
                    bad[index] = damage
        changed = any(self._present[index] for index in bad)
        lost = [
            f"{volume_path(self.carrier, index)} {damage.detail}" for index, damage in bad.items()
        ]
        offset = next(iter(bad.values())).offset if len(bad) == 1 else None
        self._verify_recoverable(
            lost, CarrierFault.VOLUME if changed else CarrierFault.INCOMPLETE, offset
        )
        self.notes += [f"{line}: made good from parity" for line in lost]

    def stored(self, scratch: Path, watch: Watch = no_progress_watch) -> ContentSpan:
        """The content of all data volumes; lost volumes are rebuilt below ``scratch``."""
        missing = [index for index in range(self.carrier.data) if index not in self._good]
        if missing:
            with watch("rebuilding from parity", "bytes") as progress:
                self._rebuild(missing, scratch, progress)
        pieces = [self._good[index].pieces for index in range(self.carrier.data)]
        return ContentSpan(piece for volume_pieces in pieces for piece in volume_pieces)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _verify_recoverable(
        self, lost: Sequence[str], fault: CarrierFault, offset: int | None = None
    ) -> None:
        if len(lost) > self.carrier.parity:
            rest = f"; parity makes good {self.carrier.parity}" if self.carrier.parity else ""
            raise CarrierRefused(fault, f"{'; '.join(lost)}{rest}", offset=offset)

    def _lost(self, index: int) -> str:
        path, listed = volume_path(self.carrier, index), self.carrier.volumes[index]
        where = f" (medium {listed.bag} of {self.carrier.bags})" if self.carrier.bags > 1 else ""
        for volume in self._present.get(index, ()):
            return f"{path} has {volume.size} bytes of {listed.size}{where}"
        return f"{path} is missing{where}"

    def _damage(self, index: int, count: ProgressCounter) -> Damage | None:
        """Why no copy of a volume is usable; None if one is, which then counts as good."""
        damage = Damage("is missing")
        for volume in self._present[index]:
            listed = self.carrier.volumes[index].file_hash
            wrong = verify_hash(volume, listed, self.carrier, count)
            if wrong is None:
                size = volume.size - HEADER_BYTES
                self._good[index] = ContentSpan([SpanPiece(volume.fd, HEADER_BYTES, size)])
                return None
            damage = wrong
        return damage

    def _rebuild(self, missing: Sequence[int], scratch: Path, progress: Progress) -> None:
        files = {index: self._scratch_file(scratch, index) for index in missing}
        digests = {index: Hasher() for index in missing}
        left = {index: self.carrier.volumes[index].size - HEADER_BYTES for index in missing}
        size = self.carrier.volumes[0].size - HEADER_BYTES
        count = ProgressCounter(sum(left.values()), progress)
        for blocks in rebuild_volumes(self._good, self.carrier.data, self.carrier.parity, size):
            for index in missing:
                block = blocks[index][: left[index]]
                left[index] -= len(block)
                digests[index].update(block)
                os.write(files[index], block)
                count.add(len(block))
        for index in missing:
            self._verify_rebuilt(index, files[index], digests[index].digest())

    def _verify_rebuilt(self, index: int, fd: int, digest: bytes) -> None:
        listed, carrier = self.carrier.volumes[index], self.carrier
        size = listed.size - HEADER_BYTES
        span = ContentSpan([SpanPiece(fd, 0, size)])
        whole = Hasher()
        whole.update(header_of(carrier, index, size, digest))
        for block in span.blocks():
            whole.update(block)
        if whole.digest() != listed.file_hash:
            detail = f"{volume_path(carrier, index)} does not come back from parity"
            raise CarrierRefused(CarrierFault.VOLUME, detail)
        self._good[index] = span

    def _scratch_file(self, scratch: Path, index: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        path = scratch / f"rebuilt-{index}"
        fd = os.open(path, flags, 0o600)
        self._stack.callback(os.close, fd)
        # It lives as long as it is open.
        path.unlink()
        return fd


@dataclass(frozen=True, slots=True)
class Cargo:
    """The content of a carrier, and the ledger whose last entry describes it."""

    ledger: CarrierLedger
    content: ContentSpan


@contextmanager
def unpacked(
    carrier: Carrier,
    stored: ContentSpan,
    privates: Sequence[bytes],
    scratch: Path,
    most: int = BundleLimits().max_bytes,
    watch: Watch = no_progress_watch,
) -> Iterator[Cargo]:
    """The cargo of volumes whose hashes and signature hold; it takes space below ``scratch``.

    A cargo that declares more than ``most`` bytes is not unpacked at all.
    """
    if carrier.encryption is None and carrier.compression is None:
        yield _cargo(carrier, stored)
        return
    plain_len = carrier.compression.plain_len if carrier.compression else carrier.stored_len
    if plain_len > most + _MAX_LEDGER:
        raise CarrierRefused(
            CarrierFault.BUNDLE_SIZE, f"expected at most {most} bytes unpacked, got {plain_len}"
        )
    path = scratch / "unpacked"
    with path.open("x+b") as file:
        # It lives as long as it is open.
        path.unlink()
        with watch("unpacking", "bytes") as progress:
            count = ProgressCounter(stored.size, progress)
            copy_blocks(_plain(carrier, count.through(stored.blocks()), privates), file)
        file.flush()
        size = os.fstat(file.fileno()).st_size
        yield _cargo(carrier, ContentSpan([SpanPiece(file.fileno(), 0, size)]))


def _plain(carrier: Carrier, blocks: Iterator[bytes], privates: Sequence[bytes]) -> Iterator[bytes]:
    if carrier.encryption is not None:
        blocks = unseal(carrier.encryption, privates, blocks)
    packed = carrier.compression
    if packed is None:
        return blocks
    if packed.alg != ZSTD:
        raise CarrierRefused(
            CarrierFault.CARRIER_VERSION,
            f"unknown compression {packed.alg!r}; a newer version of veen is needed",
        )
    verify_ratio(carrier.stored_len, packed.plain_len)
    return decompress_bytes(blocks, packed.plain_len)


def _cargo(carrier: Carrier, plain: ContentSpan) -> Cargo:
    if carrier.ledger is not None:
        return Cargo(carrier.ledger, plain)
    raw = plain.part(0, _MAX_LEDGER).read()
    try:
        end = cbor.skip(raw, 0)
        ledger = CarrierLedger.decode(raw[:end])
    except Malformed as error:
        raise CarrierRefused(
            CarrierFault.CARRIER_FORMAT, f"the encrypted ledger: {error}"
        ) from error
    if not ledger.tail:
        raise CarrierRefused(CarrierFault.CARRIER_FORMAT, "the encrypted ledger is empty")
    return Cargo(ledger, plain.part(end, plain.size))
