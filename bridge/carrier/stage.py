"""Building a carrier in a local directory, from where it goes to media (AGB0 4.9).

The same content, ledger and packing give the same bytes, unless the carrier is sealed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.carrier import compression, parity
from bridge.carrier.bag import DATA, SIGNATURE, bag_name, tag_files, volume_path
from bridge.carrier.carrier import ZSTD, Carrier, CarrierSig, Compression, Encryption, Volume
from bridge.carrier.encryption import Sealer, Sealing
from bridge.carrier.ledger import Ledger
from bridge.carrier.packing import Packing
from bridge.carrier.span import Span, copy_blocks
from bridge.carrier.volume import HEADER_BYTES, VolumeHeader, volume_name
from veen import cbor, sign
from veen.digest import Hasher, h_blocks, h_file, ht
from veen.errors import Malformed

TOOL: Final = "veen 0.0.1"


@dataclass(frozen=True, slots=True)
class Staged:
    """The bags of one carrier, in order; each goes on a medium of its own."""

    carrier: Carrier
    bags: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is carried: the file of a bundle, or of a checkpoint for a heartbeat."""

    file: Path
    ledger: Ledger
    """Its last entry is that of this content."""


def stage(
    content: Content,
    packing: Packing,
    signer: sign.PrivateKey,
    staging: Path,
    sealing: Sealing | None = None,
) -> Staged:
    """Build the bags below ``staging``, which holds nothing else when this begins."""
    if not content.ledger.tail:
        raise Malformed("the ledger has no entry for what is to be carried")
    work = staging / "work"
    work.mkdir()
    stored, compressed, encryption = _store(content, packing, work, sealing)
    with stored.open("rb") as file:
        set_id, data = _identify(Span.of_file(file), packing)
        volumes = _write_volumes(Span.of_file(file), packing, set_id, data, work)
    per_bag = packing.volumes_per_bag
    carrier = Carrier(
        tool=TOOL,
        set_id=set_id,
        data=data,
        parity=packing.parity,
        bags=-(-len(volumes) // per_bag),
        stored_len=stored.stat().st_size,
        volumes=tuple(
            Volume(bag=index // per_bag + 1, size=path.stat().st_size, file_hash=_hash(path))
            for index, path in enumerate(volumes)
        ),
        compression=compressed,
        encryption=encryption,
        ledger=None if encryption else content.ledger,
    )
    bags = tuple(_write_bag(carrier, bag, volumes, signer, staging) for bag in _bags(carrier))
    if stored != content.file:
        stored.unlink()
    work.rmdir()
    return Staged(carrier, bags)


def _bags(carrier: Carrier) -> range:
    return range(1, carrier.bags + 1)


def _store(
    content: Content, packing: Packing, work: Path, sealing: Sealing | None
) -> tuple[Path, Compression | None, Encryption | None]:
    """The file whose bytes the volumes hold, and how it came to be."""
    if sealing is None and not packing.compress:
        return content.file, None, None
    stored = work / "stored"
    prefix = content.ledger.encode() if sealing else b""
    plain_len = len(prefix) + content.file.stat().st_size
    sealer = Sealer(sealing) if sealing else None
    with content.file.open("rb") as file, stored.open("xb") as out:
        blocks: Iterator[bytes] = _prefixed(prefix, Span.of_file(file))
        if packing.compress:
            blocks = compression.compress(blocks, plain_len)
        if sealer is not None:
            blocks = sealer.seal(blocks)
        copy_blocks(blocks, out)
    found = Compression(alg=ZSTD, plain_len=plain_len) if packing.compress else None
    return stored, found, sealer.encryption if sealer else None


def _prefixed(prefix: bytes, span: Span) -> Iterator[bytes]:
    yield prefix
    yield from span.blocks()


def _identify(stored: Span, packing: Packing) -> tuple[bytes, int]:
    """A name for the set, from its bytes and how they are cut; and how many volumes hold them."""
    data = packing.data_volumes(stored.size, HEADER_BYTES)
    cut = cbor.dump([packing.volume_bytes, packing.volumes_per_bag, data, packing.parity])
    return ht("veen/agb0-set", h_blocks(stored.blocks()), cut), data


def _write_volumes(
    stored: Span, packing: Packing, set_id: bytes, data: int, work: Path
) -> list[Path]:
    capacity = packing.volume_bytes - HEADER_BYTES
    full = min(capacity, stored.size)
    spans = [stored.part(index * capacity, capacity) for index in range(data)]
    paths = [work / volume_name(index, data) for index in range(data + packing.parity)]
    for index, (path, span) in enumerate(zip(paths, spans, strict=False)):
        digest = h_blocks(span.blocks())
        header = VolumeHeader(set_id, index, data, packing.parity, span.size, digest)
        with path.open("xb") as out:
            out.write(header.encode())
            copy_blocks(span.blocks(), out)
    if packing.parity:
        _write_parity(spans, paths[data:], full, set_id)
    return paths


def _write_parity(spans: Sequence[Span], paths: Sequence[Path], size: int, set_id: bytes) -> None:
    digests = [Hasher() for _ in paths]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("xb")) for path in paths]
        for file in files:
            file.write(bytes(HEADER_BYTES))
        for blocks in parity.encode(spans, len(paths), size):
            for file, digest, block in zip(files, digests, blocks, strict=True):
                digest.update(block)
                file.write(block)
        for number, (file, digest) in enumerate(zip(files, digests, strict=True), len(spans)):
            made = VolumeHeader(set_id, number, len(spans), len(paths), size, digest.digest())
            file.seek(0)
            file.write(made.encode())


def _write_bag(
    carrier: Carrier, bag: int, volumes: Sequence[Path], signer: sign.PrivateKey, staging: Path
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


def _hash(path: Path) -> bytes:
    with path.open("rb") as file:
        return h_file(file)
