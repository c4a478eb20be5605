"""CBOR sequences on disk: items one after another, read in bounded memory (RFC 8742)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

from veen import cbor
from veen.errors import Malformed
from veen.limits import Limits
from veen.wire import WireObject

W = TypeVar("W", bound=WireObject)

MAX_ITEM_BYTES: Final = Limits().max_msg_bytes
_BLOCK: Final = 1 << 18


def items(path: Path, kind: type[W]) -> Iterator[tuple[int, W]]:
    """Every item of a file, strictly decoded, and the byte at which it begins.

    A file that is not there has none. One that ends within an item is Malformed.
    """
    buffer, begin = b"", 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                buffer += block
                at = 0
                while (end := _end(buffer, at)) is not None:
                    yield begin + at, _decoded(path, begin + at, kind, buffer[at:end])
                    at = end
                buffer, begin = buffer[at:], begin + at
                if len(buffer) > MAX_ITEM_BYTES:
                    raise Malformed(f"{path}: an item of more than {MAX_ITEM_BYTES} bytes")
    except FileNotFoundError:
        return
    if buffer:
        raise Malformed(f"{path} ends within an item, at byte {begin}")


def item_at(path: Path, offset: int, kind: type[W]) -> W:
    """The item that begins at a byte."""
    with path.open("rb") as file:
        file.seek(offset)
        buffer = file.read(_BLOCK)
        while (end := _end(buffer, 0)) is None:
            block = file.read(_BLOCK)
            if not block or len(buffer) > MAX_ITEM_BYTES:
                raise Malformed(f"{path}: no whole item at byte {offset}")
            buffer += block
    return _decoded(path, offset, kind, buffer[:end])


def _end(buffer: bytes, at: int) -> int | None:
    """Where the item at ``at`` ends, if all of it is there."""
    if at >= len(buffer):
        return None
    try:
        return cbor.skip(buffer, at)
    except Malformed:
        return None


def _decoded(path: Path, offset: int, kind: type[W], raw: bytes) -> W:
    try:
        return kind.decode(raw)
    except Malformed as error:
        raise Malformed(f"{path}, byte {offset}: {error}") from error
