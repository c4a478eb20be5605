"""The checkpoint index of a label as it grows: lines that are appended (spec 4.8.3).

The file is the map ``upto_seq -> reference`` in ascending order, so a checkpoint at the end of the
log is a line at the end of the file and a new count in its head. A checkpoint behind the last line
goes to a second file, the late lines, until the two are merged. A writer appends the line first
and counts it afterwards: a reader takes the counted lines, and those after them that are complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from veen.errors import Malformed
from veen.log import layout
from veen.log.chunk import CheckpointRef, decode_checkpoint_index
from veen.wire import cbor

_PEAKS_REF_BYTES: Final = len(layout.peaks(bytes(32), 0))
REF_BYTES: Final = 2 + _PEAKS_REF_BYTES
"""The last bytes of each line: the text ``peaks_ref`` with its head."""
LINE_BYTES: Final = 9 + 1 + 34 + 9 + 9 + REF_BYTES
"""The longest line: key, head of the array, root, two numbers, text."""
_SEQ_END: Final = -len(".cbor")
_MAP: Final = cbor.MAP << 5


class IndexLine(NamedTuple):
    upto_seq: int
    ref: CheckpointRef
    end: int
    """Where the line ends."""


def encode_count(lines: int) -> bytes:
    """The head of the map."""
    return bytes([cbor.encode(lines)[0] | _MAP]) + cbor.encode(lines)[1:]


def decode_count(raw: bytes) -> tuple[int, int]:
    """The number of lines by the head of the map, and where the first line begins."""
    major, count, at = cbor.head(raw, 0)
    if major != cbor.MAP:
        raise Malformed("checkpoint index: expected a map, got another item")
    return count, at


def encode_line(upto_seq: int, ref: CheckpointRef) -> bytes:
    return cbor.encode(upto_seq) + ref.encode()


def whole_lines(raw: bytes, at: int) -> Iterator[IndexLine]:
    """The lines from ``at`` up to the first that is incomplete or malformed."""
    while at < len(raw):
        try:
            upto_seq, at = cbor.uint(raw, at)
            ref, at = CheckpointRef.read(raw, at)
            ref.check()
        except Malformed:
            return
        yield IndexLine(upto_seq, ref, at)


def seq_before(raw: bytes, end: int, label: bytes) -> int | None:
    """The upto_seq of the line that ends at ``end``, or None if no line of the label ends there."""
    digits = end + _SEQ_END
    start = end - REF_BYTES
    text = raw[digits - layout.SEQ_DIGITS : digits]
    if start < 0 or not text or text.strip(b"0123456789"):
        return None
    upto_seq = int(text)
    expected = cbor.encode(layout.peaks(label, upto_seq))
    return upto_seq if raw[start:end] == expected else None


def first_end(raw: bytes, label: bytes) -> int | None:
    """Where the first line ends whose ``peaks_ref`` is whole in ``raw``."""
    start = raw.find(_ref_start(label))
    return None if start < 0 or start + REF_BYTES > len(raw) else start + REF_BYTES


def last_end(raw: bytes, label: bytes) -> int | None:
    """Where the last line ends whose ``peaks_ref`` is whole in ``raw``."""
    whole = len(raw) - REF_BYTES
    start = raw.rfind(_ref_start(label), 0, whole + len(_ref_start(label))) if whole >= 0 else -1
    return None if start < 0 else start + REF_BYTES


def _ref_start(label: bytes) -> bytes:
    return cbor.encode(layout.peaks(label, 0))[: _SEQ_END - layout.SEQ_DIGITS]


def decode_growing(main: bytes, late: bytes) -> dict[int, CheckpointRef]:
    """The lines of both files of an index that a hub may be writing."""
    index = _counted(main) if main else {}
    for line in whole_lines(late, 0):
        if index.setdefault(line.upto_seq, line.ref) != line.ref:
            raise Malformed(f"checkpoint index: two references for {line.upto_seq}")
    return dict(sorted(index.items()))


def _counted(main: bytes) -> dict[int, CheckpointRef]:
    count, at = decode_count(main)
    lines = list(whole_lines(main, at))
    if len(lines) < count or len(lines) > count + 1:
        # The head is behind by the line that is being written, and never ahead.
        return decode_checkpoint_index(main)
    if any(line.upto_seq <= before.upto_seq for before, line in pairwise(lines)):
        raise Malformed("checkpoint index out of order")
    return {line.upto_seq: line.ref for line in lines}
