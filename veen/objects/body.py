"""The bytes of one object on their way in or out, in memory or in a file."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest, md5
from pathlib import Path
from typing import BinaryIO, Final, cast

from veen.digest import h, h_file
from veen.objects.port import MAX_OBJECT_BYTES, ObjectDamaged, StoreRefused

PIECE: Final = 2**20


@dataclass(frozen=True, slots=True)
class Body:
    """What a put carries; it can be opened again for every attempt."""

    size: int
    sha256: bytes
    open: Callable[[], BinaryIO]


def of_bytes(data: bytes) -> Body:
    return Body(_checked_size(len(data)), h(data), lambda: io.BytesIO(data))


def of_file(source: Path) -> Body:
    size = _checked_size(source.stat().st_size)
    with source.open("rb") as file:
        return Body(size, digest_of(file), lambda: source.open("rb"))


def digest_of(file: io.BufferedIOBase) -> bytes:
    """The SHA-256 of an open file, from its start."""
    file.seek(0)
    return h_file(file)


def md5_of(body: Body) -> bytes:
    """What stores that know no other checksum check an upload by; no one relies on more."""
    with body.open() as stream:
        return file_digest(
            cast("io.BufferedIOBase", stream), lambda: md5(usedforsecurity=False)
        ).digest()


def verify_digest(key: str, found: bytes, expect: bytes | None) -> None:
    if expect is not None and found != expect:
        raise ObjectDamaged(f"{key}: digest {found.hex()}, expected {expect.hex()}")


def is_same(left: BinaryIO, right: BinaryIO) -> bool:
    """Whether two streams hold the same bytes; a short read of one is not its end."""
    while True:
        ours, theirs = _piece(left), _piece(right)
        if ours != theirs:
            return False
        if not ours:
            return True


def _piece(stream: BinaryIO) -> bytes:
    pieces, missing = [], PIECE
    while missing:
        got = stream.read(missing)
        if not got:
            break
        pieces.append(got)
        missing -= len(got)
    return b"".join(pieces)


def _checked_size(size: int) -> int:
    if size > MAX_OBJECT_BYTES:
        raise StoreRefused(f"an object of {size} bytes; at most {MAX_OBJECT_BYTES} fit")
    return size
