"""The file whose bytes the volumes of a carrier hold: the content as it is, packed, or sealed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bridge.carrier import compression
from bridge.carrier.carrier import ZSTD, Compression, Encryption
from bridge.carrier.encryption import Sealer, Sealing
from bridge.carrier.ledger import Ledger
from bridge.carrier.span import Span, copy_blocks
from bridge.carrier.watch import Count, Watch
from veen.digest import h_blocks


@dataclass(frozen=True, slots=True)
class Stored:
    """A file, and how it came to be."""

    file: Path
    compression: Compression | None = None
    encryption: Encryption | None = None


def store(
    content: Path,
    ledger: Ledger,
    work: Path,
    *,
    compress: bool,
    sealing: Sealing | None,
    watch: Watch,
) -> Stored:
    """What is to be cut into volumes; made below ``work`` unless the content serves as it is.

    A sealed carrier has its ledger before the content, inside the seal.
    """
    prefix = ledger.encode() if sealing else b""
    stored, size = Stored(content), len(prefix) + content.stat().st_size
    if compress:
        with watch("packing", "bytes") as progress:
            plain = Count(size, progress).through(_read(prefix, content))
            file = _write(work / "packed", compression.compress(plain, size))
        stored, prefix = Stored(file, Compression(alg=ZSTD, plain_len=size)), b""
    return _seal(stored, prefix, sealing, work, watch) if sealing else stored


def _seal(stored: Stored, prefix: bytes, sealing: Sealing, work: Path, watch: Watch) -> Stored:
    """Read twice: the key depends on all of it."""
    with watch("sealing", "bytes") as progress:
        count = Count(2 * (len(prefix) + stored.file.stat().st_size), progress)
        digest = h_blocks(count.through(_read(prefix, stored.file)))
        sealer = Sealer(sealing, digest)
        blocks = count.through(_read(prefix, stored.file))
        file = _write(work / "sealed", sealer.seal(blocks))
    if stored.compression is not None:
        stored.file.unlink()
    return Stored(file, stored.compression, sealer.encryption)


def _read(prefix: bytes, path: Path) -> Iterator[bytes]:
    yield prefix
    with path.open("rb") as file:
        yield from Span.of_file(file).blocks()


def _write(path: Path, blocks: Iterable[bytes]) -> Path:
    with path.open("xb") as out:
        copy_blocks(blocks, out)
    return path
