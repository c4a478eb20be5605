"""Follows a JSON-lines log file through rotations and crashes; each line is recorded exactly once.

The read position and the events are committed to the outbox in one atomic transaction: after a
crash both are present, or neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from recorder.emit.emitter import Addressed, Emitter, NoEvent, Observation
from recorder.emit.json_lines import LineForm
from recorder.emit.tail_files import (
    CHUNK_BYTES,
    Around,
    FileGeneration,
    FileMoved,
    LineBatch,
    RotationOrder,
    TailLine,
    TailPosition,
    generations,
    in_order,
    look_at,
    place_of,
    read_batch,
)
from recorder.stream_map import UnknownType
from veen.client.outbox import Note, OutboxFull
from veen.client.transport import Unreachable
from veen.errors import Malformed, VeenError

UNPARSED: Final = "log.unparsed"
_EMPTY_MARK: Final = Around(b"", b"").mark()
_TEXT_OVERHEAD: Final = 256
_SHOWN: Final = 200
_FLUSH_EVENTS: Final = 1_024
_FIRST_WAIT_MS: Final = 500
_LONGEST_WAIT_MS: Final = 30_000


class TailStopped(VeenError):
    """A line that is not an event, where the policy is to stop there."""


class TailGap(VeenError):
    """The file that was being read is gone, with an unknown number of unread lines."""


class OnBadLine(Enum):
    """The policy for a line that is not an event."""

    STOP = "stop"
    RECORD = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRules:
    """How lines become events.

    A rotated file is finished once it was not written for ``settle_ms``.
    """

    form: LineForm
    subject_id: str
    origin: str
    on_bad_line: OnBadLine = OnBadLine.STOP
    settle_ms: int = 2_000
    accept_gap: bool = False


class TailStep(NamedTuple):
    """How many events were stored; ``is_idle`` when there was nothing to read."""

    events: int
    is_idle: bool


class _Place(NamedTuple):
    """Where reading continues: in the first of ``files``, the unfinished files, oldest first.

    ``finished`` are the identities of all others.
    """

    files: list[FileGeneration]
    offset: int
    mark: bytes | None
    finished: tuple[bytes, ...]


class FileTail:
    """Follows a log file; its position is stored in the outbox under ``name``."""

    def __init__(self, path: Path, name: str, emitter: Emitter, rules: TailRules) -> None:
        if rules.on_bad_line is OnBadLine.RECORD:
            emitter.streams.stream_of(UNPARSED)
        self.path = path.absolute()
        self.gaps = 0
        self._at = self.path
        self._name = name
        self._emitter = emitter
        self._rules = rules
        self._unchanged: tuple[bytes, float] = (b"", 0.0)

    def step(self) -> TailStep:
        """Store the next lines as events, with the position after them."""
        try:
            position = self.position()
            batch = self._next_in_same_file(position)
            if batch is not None and batch.lines:
                return self._store(batch, position.finished if position else ())
            place = self._place(position)
            return TailStep(0, is_idle=True) if place is None else self._read(place)
        except FileMoved:
            return TailStep(0, is_idle=False)

    def is_caught_up(self) -> bool:
        """Whether nothing is unread except, at most, an unterminated line."""
        try:
            position, files = self.position(), generations(self.path)
            if position is None:
                return not files
            unread = self._unread(position, files)
            number = place_of(position, unread)
        except FileMoved:
            return False
        if number is None:
            return not unread
        later = unread[number + 1 :]
        is_read = not later or unread[number].size == position.offset
        return is_read and all(file.size == 0 for file in later)

    def position(self) -> TailPosition | None:
        raw = self._emitter.note(self._name)
        return None if raw is None else TailPosition.decode(raw)

    def _next_in_same_file(self, position: TailPosition | None) -> LineBatch | None:
        """Read on in a file that still has its name, without looking at other files."""
        file = look_at(self._at)
        if position is None or file is None or not position.offset:
            return None
        if (file.device, file.inode) != (position.device, position.inode):
            return None
        try:
            return read_batch(file, position.offset, position.mark, is_finished=False)
        except FileMoved:
            return None

    def _place(self, position: TailPosition | None) -> _Place | None:
        files = generations(self.path)
        if position is None:
            return self._begin(files)
        unread = self._unread(position, files)
        number = place_of(position, unread)
        if number is None:
            return self._after_gap(position, files, unread)
        if position.finished is None:
            return self._adopted(position, files, unread[number:])
        if number:
            raise self._out_of_order(unread, number)
        return self._from(position, files, unread)

    def _unread(self, position: TailPosition, files: list[FileGeneration]) -> list[FileGeneration]:
        finished = frozenset(position.finished or ())
        return in_order(self.path, [file for file in files if file.identity not in finished])

    def _from(
        self, position: TailPosition, files: list[FileGeneration], unread: list[FileGeneration]
    ) -> _Place:
        mark = position.mark if position.offset else None
        return _Place(unread, position.offset, mark, _others(files, unread))

    def _adopted(
        self, position: TailPosition, files: list[FileGeneration], unread: list[FileGeneration]
    ) -> _Place:
        """Upgrade a position of an earlier release: files that are older by name were read."""
        place = self._from(position, files, unread)
        note = Note(self._name, replace(position, finished=place.finished).encode())
        self._emitter.store([], note=note)
        return place

    def _after_gap(
        self, position: TailPosition, files: list[FileGeneration], unread: list[FileGeneration]
    ) -> _Place | None:
        if not self._rules.accept_gap:
            raise TailGap(
                f"{self.path}: the file that was read up to byte {position.offset} is gone, with "
                "whatever else it held; keep rotated files in this folder and uncompressed, or "
                "go on with the oldest that is left (--accept-gap)"
            )
        self.gaps += 1
        return _Place(unread, 0, None, _others(files, unread)) if unread else None

    def _out_of_order(self, unread: list[FileGeneration], number: int) -> RotationOrder:
        names = ", ".join(file.path.name for file in unread[:number])
        return RotationOrder(
            f"{self.path}: {names} is older by its name than {unread[number].path.name}, which is "
            "being read, but it was not there before or has changed since it was read: the clock "
            "was set back, or it was written to after --settle-ms. Nothing of it is recorded. "
            "Rename rotated files in the order in which they were written, or move it away and "
            "record it with veen recorder emit"
        )

    def _begin(self, files: list[FileGeneration]) -> _Place | None:
        """Start at the beginning of the live file and store its identity."""
        live = [file for file in files if file.path == self.path]
        if not live:
            return None
        place = _Place(live, 0, None, _others(files, live))
        self._remember(place.files[0], place.finished)
        return place

    def _remember(self, file: FileGeneration, finished: tuple[bytes, ...]) -> None:
        position = TailPosition(
            device=file.device, inode=file.inode, offset=0, mark=_EMPTY_MARK, finished=finished
        )
        self._emitter.store([], note=Note(self._name, position.encode()))

    def _read(self, place: _Place) -> TailStep:
        files, offset, mark, finished = place
        number = 0
        while True:
            is_finished = self._is_finished(files, number)
            batch = read_batch(files[number], offset, mark, is_finished=is_finished)
            if batch.lines:
                return self._store(batch, finished)
            if not is_finished:
                break
            finished = (*finished, files[number].identity)
            number, offset, mark = number + 1, 0, None
        if number > 1:
            # Empty files may be rotated until the file that was read last is deleted.
            self._remember(files[number - 1], finished[:-1])
        return TailStep(0, is_idle=True)

    def _is_finished(self, files: list[FileGeneration], number: int) -> bool:
        if number == len(files) - 1:
            return False
        return number < len(files) - 2 or self._is_settled(files[number])

    def _is_settled(self, file: FileGeneration) -> bool:
        """By the modification time, or as observed where the clock is behind it."""
        if self._emitter.clock() - file.mtime_ns // 1_000_000 >= self._rules.settle_ms:
            return True
        now = time.monotonic()
        if self._unchanged[0] != file.identity:
            self._unchanged = (file.identity, now)
        return (now - self._unchanged[1]) * 1000 > self._rules.settle_ms

    def _store(self, batch: LineBatch, finished: tuple[bytes, ...] | None) -> TailStep:
        events: list[Addressed] = []
        last = None
        for line in batch.lines:
            try:
                events.extend(self._event(line))
            except (NoEvent, UnknownType, Malformed) as error:
                if self._rules.on_bad_line is OnBadLine.STOP:
                    if last is None:
                        raise self._stopped(batch, line, error) from error
                    break
                events.extend(self._unparsed(batch, line, error))
            last = line
        if last is not None:
            note = Note(self._name, batch.position_after(last, finished).encode())
            self._emitter.store(events, note=note)
            self._at = batch.generation.path
        return TailStep(len(events), is_idle=False)

    def _event(self, line: TailLine) -> Iterator[Addressed]:
        if line.is_cut:
            raise NoEvent(f"a line: expected at most {CHUNK_BYTES} bytes, got more")
        if line.raw.strip():
            yield self._emitter.address(self._rules.form.read(line.raw))

    def _unparsed(self, batch: LineBatch, line: TailLine, why: VeenError) -> Iterator[Addressed]:
        """The raw line, split into pieces that fit the payload limit of the stream."""
        bound = self._emitter.streams.stream_of(UNPARSED).max_payload_bytes
        file = batch.generation.path.name
        # A byte becomes at most four characters of text.
        size = max(1, (bound - _TEXT_OVERHEAD - _SHOWN - 2 * len(file.encode())) // 4)
        text = line.raw.removesuffix(b"\n")
        for at in range(0, len(text), size):
            payload = {
                "text": text[at : at + size].decode("utf-8", "backslashreplace"),
                "file": file,
                "offset": line.offset + at,
                "why": _short(str(why)),
            }
            yield self._emitter.address(
                Observation(
                    event_type=UNPARSED,
                    subject_id=self._rules.subject_id,
                    origin=self._rules.origin,
                    payload=payload,
                )
            )

    def _stopped(self, batch: LineBatch, line: TailLine, error: VeenError) -> TailStopped:
        shown = line.raw[:_SHOWN].decode("utf-8", "backslashreplace").rstrip("\n")
        return TailStopped(
            f"{batch.generation.path}, byte {line.offset}: no event: {error}; the line is "
            f"{shown!r}; all before it is stored. Record such lines with --on-bad-line record"
        )


def _others(files: list[FileGeneration], unread: list[FileGeneration]) -> tuple[bytes, ...]:
    return tuple(file.identity for file in files if file not in unread)


def _short(text: str) -> str:
    return text.encode("ascii", "backslashreplace")[:_SHOWN].decode()


@dataclass(frozen=True, slots=True)
class Tailed:
    events: int
    acknowledged: int


class TailRun:
    """Reads and sends until stopped.

    Reading continues while the hub is unreachable, until the outbox is full.
    """

    def __init__(self, tail: FileTail, emitter: Emitter, tell: Callable[[str], None]) -> None:
        self._tail = tail
        self._emitter = emitter
        self._tell = tell
        self._events = self._acknowledged = 0
        self._wait_ms = self._not_before = 0
        self._gaps = 0
        self.trouble: VeenError | None = None

    def follow(self, sleep: Callable[[float], None], poll_sec: float) -> None:
        """Run until an error that a retry cannot resolve."""
        while True:
            if self.turn().is_idle:
                sleep(poll_sec)

    def catch_up(self, sleep: Callable[[float], None], poll_sec: float) -> Tailed:
        """Run until everything is stored and sent.

        Raises Unreachable once it is stored but not sent.
        """
        while True:
            is_idle = self.turn().is_idle
            if is_idle and self.trouble is not None:
                self.trouble.add_note(f"{self._emitter.pending()} events wait in the outbox")
                raise self.trouble
            if is_idle and not self._emitter.pending() and self._tail.is_caught_up():
                return Tailed(self._events, self._acknowledged)
            if is_idle:
                sleep(poll_sec)

    def turn(self) -> TailStep:
        step = self._step()
        self._events += step.events
        if self._tail.gaps > self._gaps:
            self._gaps = self._tail.gaps
            self._tell(
                f"{self._tail.path}: lines are missing: the file that was being read is gone"
            )
        is_due = step.is_idle or self._emitter.pending() >= _FLUSH_EVENTS
        if is_due and self._emitter.clock() >= self._not_before:
            self._flush()
        return step

    def _step(self) -> TailStep:
        try:
            return self._tail.step()
        except OutboxFull as error:
            if self.trouble is None:
                self._tell(f"waiting: {error}")
            return TailStep(0, is_idle=True)

    def _flush(self) -> None:
        if not self._emitter.pending():
            return
        try:
            self._acknowledged += self._emitter.flush().acknowledged
        except Unreachable as error:
            if self.trouble is None:
                self._tell(f"stored until the hub answers: {error}")
            self.trouble = error
            self._wait_ms = min(max(2 * self._wait_ms, _FIRST_WAIT_MS), _LONGEST_WAIT_MS)
            self._not_before = self._emitter.clock() + self._wait_ms
        else:
            if self.trouble is not None:
                self._tell("the hub answers again")
            self.trouble, self._wait_ms = None, 0
