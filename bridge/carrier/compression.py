"""zstd around a carrier's content: the same bytes in, the same bytes out, and no bomb comes in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import IO, Final, cast

import zstandard

from bridge.refusal import Fault, Refused

MAX_RATIO: Final = 200
_FLOOR: Final = 1 << 16
"""What few bytes may become in any case."""
_WINDOW_LOG: Final = 23
_LEVEL: Final = 9
_BLOCK: Final = 1 << 18


def compress(blocks: Iterable[bytes], plain_len: int) -> Iterator[bytes]:
    """The stream compressed; other versions of zstd may give other bytes."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, threads=0
    )
    running = zstandard.ZstdCompressor(compression_params=parameters).compressobj(size=plain_len)
    for block in blocks:
        yield running.compress(block)
    yield running.flush()


def verify_ratio(stored_len: int, plain_len: int) -> None:
    """Refuse a length that no honest content has, before a byte is inflated."""
    if plain_len > max(_FLOOR, stored_len * MAX_RATIO):
        raise Refused(
            Fault.UNPACKED_SIZE,
            f"{stored_len} bytes would become {plain_len}; {MAX_RATIO} for one is the most",
        )


def decompress(blocks: Iterable[bytes], plain_len: int) -> Iterator[bytes]:
    """The plain stream, which ends at ``plain_len`` or is refused at the first byte beyond."""
    running = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
    left, source = plain_len, cast("IO[bytes]", _Blocks(blocks))
    with running.stream_reader(source, read_across_frames=True) as reader:
        while block := _read(reader):
            left -= len(block)
            if left < 0:
                raise Refused(Fault.UNPACKED_SIZE, f"it unpacks to more than {plain_len} bytes")
            yield block
    if left:
        raise Refused(Fault.UNPACKED_SIZE, f"it unpacks to {left} bytes less than {plain_len}")


def _read(reader: zstandard.ZstdDecompressionReader) -> bytes:
    try:
        return reader.read(_BLOCK)
    except zstandard.ZstdError as error:
        raise Refused(Fault.COMPRESSION, f"it does not unpack: {error}") from error


class _Blocks:
    """Blocks as a file to read from."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        self._blocks = iter(blocks)
        self._rest = b""

    def read(self, size: int) -> bytes:
        if not self._rest:
            self._rest = next(self._blocks, b"")
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken
