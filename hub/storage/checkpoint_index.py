"""The checkpoint index files of labels, appended in place (spec 4.8.3).

A line costs the same for any number of lines before it. ``IndexExtent`` says how far the files of
a label were complete when the hub's index was last written, so only what follows is read again: a
torn line is cut, and a line that is not counted yet is counted. An extent that does not fit, as
after a restored backup, is ignored, and the whole file is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hub.storage.datadir import DataDir
from hub.storage.index import NO_EXTENT, IndexExtent
from hub.storage.label_log import Damaged
from veen.errors import Malformed
from veen.log import layout
from veen.log.checkpoint_index import (
    LINE_BYTES,
    REF_BYTES,
    IndexLine,
    decode_count,
    decode_growing,
    encode_count,
    encode_line,
    first_end,
    last_end,
    seq_before,
    whole_lines,
)
from veen.log.chunk import CheckpointRef, encode_checkpoint_index
from veen.system import durable

_HEAD_BYTES: Final = 9
_NEAR: Final = 4 * LINE_BYTES


class _Settled(NamedTuple):
    """A file without a torn line."""

    lines: int
    size: int
    last_seq: int


def read_index(datadir: DataDir, label: bytes) -> dict[int, CheckpointRef]:
    """All lines of a label's index."""
    late = _read(datadir.file(layout.late_checkpoints(label)))
    return decode_growing(_read(datadir.file(layout.checkpoint_index(label))), late)


def write_index(datadir: DataDir, label: bytes, index: dict[int, CheckpointRef]) -> None:
    """Replace both files of an index by one file with these lines."""
    durable.write(datadir.file(layout.checkpoint_index(label)), encode_checkpoint_index(index))
    late = datadir.file(layout.late_checkpoints(label))
    if late.exists():
        late.unlink()
        durable.sync_directory(late.parent)


def merge_late(datadir: DataDir, label: bytes) -> None:
    """Move the late lines of a label to their places in the index."""
    if datadir.file(layout.late_checkpoints(label)).exists():
        write_index(datadir, label, read_index(datadir, label))


def settle_index(datadir: DataDir, label: bytes) -> IndexExtent:
    """Read an index from its start and complete it; its extent."""
    path = datadir.file(layout.checkpoint_index(label))
    if not path.exists():
        return NO_EXTENT
    with _open(path) as handle:
        main = _settle_main(handle, path, label, NO_EXTENT)
    late = _read(datadir.file(layout.late_checkpoints(label)))
    return IndexExtent(main.lines, main.size, _end(whole_lines(late, 0)))


def last_listed(datadir: DataDir, label: bytes) -> int:
    """The upto_seq of the last complete line of an index, or 0."""
    try:
        handle = os.open(datadir.file(layout.checkpoint_index(label)), os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        size = os.fstat(handle).st_size
        tail = os.pread(handle, _NEAR, max(0, size - _NEAR))
    finally:
        os.close(handle)
    end = last_end(tail, label)
    return (seq_before(tail, end, label) or 0) if end is not None else 0


def add_line(
    datadir: DataDir, label: bytes, upto_seq: int, ref: CheckpointRef, known: IndexExtent
) -> IndexExtent:
    """Add a line to an index unless it is there; durable on return. The new extent."""
    path, line = datadir.file(layout.checkpoint_index(label)), encode_line(upto_seq, ref)
    if not path.exists():
        durable.write(path, encode_count(1) + line)
        return IndexExtent(1, path.stat().st_size, known.late_size)
    with _open(path) as handle:
        main = _settle_main(handle, path, label, known)
        if upto_seq > main.last_seq:
            size = _append(handle, path, main, line)
            return IndexExtent(main.lines + 1, size, known.late_size)
        present = _find(handle, label, main.size, upto_seq)
    if present is not None:
        _verify_same(path, upto_seq, present, ref)
        return IndexExtent(main.lines, main.size, known.late_size)
    late_size = _add_late(datadir, label, upto_seq, ref, known.late_size)
    return IndexExtent(main.lines, main.size, late_size)


def _append(handle: int, path: Path, main: _Settled, line: bytes) -> int:
    """Append a line, then count it. The size of the file."""
    head, old = encode_count(main.lines + 1), encode_count(main.lines)
    if main.lines and len(head) == len(old):
        durable.append(handle, main.size, line)
        durable.write_at(handle, head, 0)
        durable.sync(handle)
        return main.size + len(line)
    # The head grows with the lines 24, 256 and 65,536, and never again below 2**32.
    lines = os.pread(handle, main.size, 0)[len(old) :]
    durable.write(path, head + lines + line)
    return len(head) + len(lines) + len(line)


def _add_late(datadir: DataDir, label: bytes, upto_seq: int, ref: CheckpointRef, known: int) -> int:
    """Add a late line unless it is there. The size of the file."""
    path = datadir.file(layout.late_checkpoints(label))
    with _open(path) as handle:
        size = os.fstat(handle).st_size
        if known > size or (known and _seq_at(handle, known, label) is None):
            known = 0
        recent = list(whole_lines(os.pread(handle, size - known, known), 0))
        end = known + _end(recent)
        if end < size:
            durable.cut(handle, end)
        for line in recent:
            if line.upto_seq == upto_seq:
                _verify_same(path, upto_seq, line.ref, ref)
                return end
        line_bytes = encode_line(upto_seq, ref)
        durable.append(handle, end, line_bytes)
        return end + len(line_bytes)


def _settle_main(handle: int, path: Path, label: bytes, known: IndexExtent) -> _Settled:
    """Cut a torn line off an index, and count a line that is complete."""
    size = os.fstat(handle).st_size
    if size == 0:
        return _Settled(0, 0, 0)
    try:
        count, start = decode_count(os.pread(handle, _HEAD_BYTES, 0))
        settled = _after(handle, size, count, label, known) or _whole(handle, size, count, start)
    except Malformed as error:
        raise Damaged(f"{path.name}: {error}: run `veen hub rebuild`") from error
    if settled.size < size:
        durable.cut(handle, settled.size)
    if settled.lines != count:
        durable.write_at(handle, encode_count(settled.lines), 0)
        durable.sync(handle)
    return settled


def _after(handle: int, size: int, count: int, label: bytes, known: IndexExtent) -> _Settled | None:
    """The state of an index from its known extent on, or None if that is not of this file."""
    last_seq = _seq_at(handle, known.size, label) if 0 < known.size <= size else None
    if last_seq is None or not known.lines:
        return None
    lines = list(whole_lines(os.pread(handle, size - known.size, known.size), 0))
    total = known.lines + len(lines)
    if count != total and not (lines and count == total - 1):
        return None
    uptos = [last_seq, *(line.upto_seq for line in lines)]
    if uptos != sorted(set(uptos)):
        return None
    return _Settled(total, known.size + _end(lines), uptos[-1])


def _whole(handle: int, size: int, count: int, start: int) -> _Settled:
    """The state of an index that is read from its start."""
    raw = os.pread(handle, size, 0)
    lines = list(whole_lines(raw, start))
    if not count <= len(lines) <= count + 1 or not lines:
        raise Malformed(f"expected {count} lines, got {len(lines)} that are complete")
    uptos = [line.upto_seq for line in lines]
    if uptos != sorted(set(uptos)):
        raise Malformed("lines are out of order")
    return _Settled(len(lines), lines[-1].end, uptos[-1])


def _find(handle: int, label: bytes, size: int, upto_seq: int) -> CheckpointRef | None:
    """The line of an upto_seq, by bisection over the bytes of the file."""
    _, low = decode_count(os.pread(handle, _HEAD_BYTES, 0))
    high = size
    while high - low > _NEAR:
        middle = (low + high) // 2
        window = os.pread(handle, 2 * LINE_BYTES, middle)
        end = first_end(window, label)
        seq = None if end is None else seq_before(window, end, label)
        if end is None or seq is None:
            raise Damaged(
                f"{layout.checkpoint_index(label)}: no line near byte {middle}: "
                "run `veen hub rebuild`"
            )
        if seq < upto_seq:
            low = middle + end
        else:
            high = middle + end
    for line in whole_lines(os.pread(handle, high - low, low), 0):
        if line.upto_seq == upto_seq:
            return line.ref
    return None


def _seq_at(handle: int, end: int, label: bytes) -> int | None:
    """The upto_seq of the line that ends at byte ``end`` of a file."""
    start = max(0, end - REF_BYTES)
    return seq_before(os.pread(handle, end - start, start), end - start, label)


def _end(lines: Iterator[IndexLine] | list[IndexLine]) -> int:
    return max((line.end for line in lines), default=0)


def _verify_same(path: Path, upto_seq: int, listed: CheckpointRef, ref: CheckpointRef) -> None:
    if listed != ref:
        raise Damaged(
            f"{path.name}: the line of {upto_seq} has root {listed.mmr_root.hex()} and begins its "
            f"chunk at {listed.start_seq}, expected root {ref.mmr_root.hex()} and "
            f"{ref.start_seq}: run `veen hub verify`"
        )


@contextmanager
def _open(path: Path) -> Iterator[int]:
    handle = durable.open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        yield handle
    finally:
        os.close(handle)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
