"""Building a carrier in a local directory, from where it is copied to media (AGB0 4.9).

The same content, ledger, packing and exporter give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bridge.carrier.bag import DATA, SIGNATURE, bag_name, tag_files, volume_path
from bridge.carrier.codec import Sealing, VolumeSealer, compress_bytes, encode_parity
from bridge.carrier.format import (
    HEADER_BYTES,
    TOOL,
    ZSTD,
    Carrier,
    CarrierLedger,
    CarrierSig,
    Compression,
    Encryption,
    Packing,
    Volume,
    VolumeHeader,
    volume_name,
)
from bridge.carrier.reader import ContentSpan, copy_blocks
from veen.crypto import SigningKey
from veen.digest import Hasher, h_blocks, ht
from veen.errors import Malformed
from veen.system.environment import ProgressCounter, Watch, no_progress_watch
from veen.wire import cbor


@dataclass(frozen=True, slots=True)
class StoredFile:
    """The file whose bytes the volumes hold, and how it was encoded."""

    file: Path
    compression: Compression | None = None
    encryption: Encryption | None = None


def store(
    content: Path,
    ledger: CarrierLedger,
    folder: Path,
    *,
    compress: bool,
    sealing: Sealing | None,
    watch: Watch,
) -> StoredFile:
    """The file to be split into volumes: the content itself, or its encoded form below ``folder``.

    An encrypted carrier has its ledger before the content, inside the encryption.
    """
    prefix = ledger.encode() if sealing else b""
    stored, size = StoredFile(content), len(prefix) + content.stat().st_size
    if compress:
        with watch("packing", "bytes") as progress:
            plain = ProgressCounter(size, progress).through(_read(prefix, content))
            file = _write(folder / "packed", compress_bytes(plain, size))
        stored, prefix = StoredFile(file, Compression(alg=ZSTD, plain_len=size)), b""
    return _seal(stored, prefix, sealing, folder, watch) if sealing else stored


def _seal(
    stored: StoredFile, prefix: bytes, sealing: Sealing, folder: Path, watch: Watch
) -> StoredFile:
    """Encrypt a file, which is read twice, since the key depends on all of it."""
    with watch("sealing", "bytes") as progress:
        count = ProgressCounter(2 * (len(prefix) + stored.file.stat().st_size), progress)
        digest = h_blocks(count.through(_read(prefix, stored.file)))
        sealer = VolumeSealer(sealing, digest)
        blocks = count.through(_read(prefix, stored.file))
        file = _write(folder / "sealed", sealer.seal(blocks))
    if stored.compression is not None:
        stored.file.unlink()
    return StoredFile(file, stored.compression, sealer.encryption)


def _read(prefix: bytes, path: Path) -> Iterator[bytes]:
    yield prefix
    with path.open("rb") as file:
        yield from ContentSpan.of_file(file).blocks()


def _write(path: Path, blocks: Iterable[bytes]) -> Path:
    with path.open("xb") as out:
        copy_blocks(blocks, out)
    return path


@dataclass(frozen=True, slots=True)
class StagedCarrier:
    """The bags of one carrier, in order, each for a medium of its own."""

    carrier: Carrier
    bags: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of a carrier: the file of a bundle, or of a checkpoint for a heartbeat."""

    file: Path
    ledger: CarrierLedger
    """The ledger whose last entry is that of this content."""


def stage(
    content: Content,
    packing: Packing,
    signer: SigningKey,
    staging: Path,
    sealing: Sealing | None = None,
    watch: Watch = no_progress_watch,
) -> StagedCarrier:
    """Build the bags below ``staging``, which must be empty."""
    if not content.ledger.tail:
        raise Malformed("the ledger: expected an entry of this carrier, got none")
    folder = staging / "work"
    folder.mkdir()
    stored = store(
        content.file,
        content.ledger,
        folder,
        compress=packing.compress,
        sealing=sealing,
        watch=watch,
    )
    with stored.file.open("rb") as file:
        set_id, data = _identify(ContentSpan.of_file(file), packing, watch)
        volumes = _write_volumes(ContentSpan.of_file(file), packing, set_id, data, folder, watch)
    per_bag = packing.volumes_per_bag
    carrier = Carrier(
        tool=TOOL,
        set_id=set_id,
        data=data,
        parity=packing.parity,
        bags=-(-len(volumes) // per_bag),
        stored_len=stored.file.stat().st_size,
        volumes=tuple(
            Volume(bag=index // per_bag + 1, size=path.stat().st_size, file_hash=digest)
            for index, (path, digest) in enumerate(_hashed(volumes, watch))
        ),
        compression=stored.compression,
        encryption=stored.encryption,
        ledger=None if stored.encryption else content.ledger,
    )
    bags = tuple(_write_bag(carrier, bag, volumes, signer, staging) for bag in _bags(carrier))
    if stored.file != content.file:
        stored.file.unlink()
    folder.rmdir()
    return StagedCarrier(carrier, bags)


def _bags(carrier: Carrier) -> range:
    return range(1, carrier.bags + 1)


def _identify(stored: ContentSpan, packing: Packing, watch: Watch) -> tuple[bytes, int]:
    """The set_id, from the content and its packing, and the number of data volumes."""
    data = packing.data_volumes(stored.size, HEADER_BYTES)
    cut = cbor.dump([packing.volume_bytes, packing.volumes_per_bag, data, packing.parity])
    with watch("hashing what is carried", "bytes") as progress:
        digest = h_blocks(ProgressCounter(stored.size, progress).through(stored.blocks()))
    return ht("veen/agb0-set", digest, cut), data


def _write_volumes(
    stored: ContentSpan, packing: Packing, set_id: bytes, data: int, folder: Path, watch: Watch
) -> list[Path]:
    capacity = packing.volume_bytes - HEADER_BYTES
    full = min(capacity, stored.size)
    spans = [stored.part(index * capacity, capacity) for index in range(data)]
    paths = [folder / volume_name(index, data) for index in range(data + packing.parity)]
    with watch("cutting volumes", "bytes") as progress:
        count = ProgressCounter(2 * stored.size, progress)
        for index, (path, span) in enumerate(zip(paths, spans, strict=False)):
            digest = h_blocks(count.through(span.blocks()))
            header = VolumeHeader(set_id, index, data, packing.parity, span.size, digest)
            with path.open("xb") as out:
                out.write(header.encode())
                copy_blocks(count.through(span.blocks()), out)
    if packing.parity:
        with watch("making parity", "bytes") as progress:
            count = ProgressCounter(full * packing.parity, progress)
            _write_parity(spans, paths[data:], full, set_id, count)
    return paths


def _write_parity(
    spans: Sequence[ContentSpan],
    paths: Sequence[Path],
    size: int,
    set_id: bytes,
    count: ProgressCounter,
) -> None:
    digests = [Hasher() for _ in paths]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("xb")) for path in paths]
        for file in files:
            file.write(bytes(HEADER_BYTES))
        for blocks in encode_parity(spans, len(paths), size):
            for file, digest, block in zip(files, digests, blocks, strict=True):
                digest.update(block)
                file.write(block)
                count.add(len(block))
        for number, (file, digest) in enumerate(zip(files, digests, strict=True), len(spans)):
            header = VolumeHeader(set_id, number, len(spans), len(paths), size, digest.digest())
            file.seek(0)
            file.write(header.encode())


def _write_bag(
    carrier: Carrier, bag: int, volumes: Sequence[Path], signer: SigningKey, staging: Path
) -> Path:
    root = staging / bag_name(carrier, bag)
    (root / DATA).mkdir(parents=True)
    for index, path in enumerate(volumes):
        if carrier.volumes[index].bag == bag:
            path.rename(root / volume_path(carrier, index))
    files = tag_files(carrier, bag)
    for name, raw in files.items():
        (root / name).write_bytes(raw)
    signature = CarrierSig.of(signer, files["tagmanifest-sha256.txt"])
    (root / SIGNATURE).write_bytes(signature.encode())
    return root


def _hashed(paths: Sequence[Path], watch: Watch) -> Iterator[tuple[Path, bytes]]:
    with watch("hashing volumes", "bytes") as progress:
        count = ProgressCounter(sum(path.stat().st_size for path in paths), progress)
        for path in paths:
            with path.open("rb") as file:
                yield path, h_blocks(count.through(ContentSpan.of_file(file).blocks()))
