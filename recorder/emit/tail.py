"""Following a JSON-lines log file through rotations and crashes, each line recorded exactly once.

The position is kept in the instant in which the events are: a crash finds both or neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from recorder.emit.emitter import Addressed, Emitter
from recorder.emit.line import LineForm
from recorder.emit.observation import NoEvent, Observation
from recorder.emit.tail_files import Generation, Moved, generations, look_at, place_of
from recorder.emit.tail_lines import CHUNK_BYTES, Portion, TailLine, read_portion
from recorder.emit.tail_position import Around, TailPosition
from recorder.stream_map import UnknownType
from veen.client.outbox import Note
from veen.errors import Malformed, VeenError

UNPARSED: Final = "log.unparsed"
_NOTHING: Final = Around(b"", b"").mark()
_AROUND_TEXT: Final = 256
_SHOWN: Final = 200


class TailStopped(VeenError):
    """A line that is no event, where the policy is to stop there."""


class TailGap(VeenError):
    """The file that was being read is gone, and nobody can tell what it still held."""


class OnBadLine(Enum):
    """What becomes of a line that is no event."""

    STOP = "stop"
    RECORD = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRules:
    """A file that was rotated away is done once nobody wrote to it for ``settle_ms``."""

    form: LineForm
    subject_id: str
    origin: str
    on_bad_line: OnBadLine = OnBadLine.STOP
    settle_ms: int = 2_000
    accept_gap: bool = False


class Step(NamedTuple):
    """How many events were kept; ``is_idle`` when there was nothing to read."""

    events: int
    is_idle: bool


class _Place(NamedTuple):
    number: int
    offset: int
    mark: bytes | None


class Tail:
    """Remembers nothing but where it just was; where it goes on is in the outbox, by ``name``."""

    def __init__(self, path: Path, name: str, emitter: Emitter, rules: TailRules) -> None:
        if rules.on_bad_line is OnBadLine.RECORD:
            emitter.streams.stream_of(UNPARSED)
        self.path = path.absolute()
        self.gaps = 0
        self._at = self.path
        self._name = name
        self._emitter = emitter
        self._rules = rules

    def step(self) -> Step:
        """Keep the next lines, with the position after them."""
        try:
            portion = self._next_in_same_file()
            if portion is not None and portion.lines:
                return self._keep(portion)
            found = generations(self.path)
            place = self._place(found)
            return Step(0, is_idle=True) if place is None else self._read(found, place)
        except Moved:
            return Step(0, is_idle=False)

    def is_caught_up(self) -> bool:
        """Whether nothing is left but, at most, a line that still lacks its end."""
        try:
            found = generations(self.path)
            position = self.position()
            number = None if position is None else place_of(position, found)
        except Moved:
            return False
        if position is None or number is None:
            return not found
        later = found[number + 1 :]
        is_read = not later or found[number].size == position.offset
        return is_read and all(one.size == 0 for one in later)

    def position(self) -> TailPosition | None:
        raw = self._emitter.note(self._name)
        return None if raw is None else TailPosition.decode(raw)

    def _next_in_same_file(self) -> Portion | None:
        """What follows in a file that still has its name: no other file matters then."""
        position, one = self.position(), look_at(self._at)
        if position is None or one is None or not position.offset:
            return None
        if (one.device, one.inode) != (position.device, position.inode):
            return None
        try:
            return read_portion(one, position.offset, position.mark, is_finished=False)
        except Moved:
            return None

    def _place(self, found: list[Generation]) -> _Place | None:
        position = self.position()
        if position is None:
            return self._begin(found)
        number = place_of(position, found)
        if number is not None:
            return _Place(number, position.offset, position.mark if position.offset else None)
        if not self._rules.accept_gap:
            raise TailGap(
                f"{self.path}: the file that was read up to byte {position.offset} is gone, with "
                "whatever else it held; keep rotated files in this folder and uncompressed, or "
                "go on with the oldest that is left (--accept-gap)"
            )
        self.gaps += 1
        return _Place(0, 0, None) if found else None

    def _begin(self, found: list[Generation]) -> _Place | None:
        """At the start of the file; from now on it is known under any name."""
        if not found or found[-1].path != self.path:
            return None
        self._remember(found[-1])
        return _Place(len(found) - 1, 0, None)

    def _remember(self, one: Generation) -> None:
        position = TailPosition(device=one.device, inode=one.inode, offset=0, mark=_NOTHING)
        self._emitter.keep([], note=Note(self._name, position.encode()))

    def _read(self, found: list[Generation], place: _Place) -> Step:
        number, offset, mark = place
        while True:
            is_finished = self._is_finished(found, number)
            portion = read_portion(found[number], offset, mark, is_finished=is_finished)
            if portion.lines:
                return self._keep(portion)
            if not is_finished:
                break
            number, offset, mark = number + 1, 0, None
        if number - 1 > place.number:
            # Empty files may be rotated until the one that was read last is gone.
            self._remember(found[number - 1])
        return Step(0, is_idle=True)

    def _is_finished(self, found: list[Generation], number: int) -> bool:
        if number == len(found) - 1:
            return False
        quiet_ms = self._emitter.clock() - found[number].mtime_ns // 1_000_000
        return number < len(found) - 2 or quiet_ms >= self._rules.settle_ms

    def _keep(self, portion: Portion) -> Step:
        events: list[Addressed] = []
        last = None
        for line in portion.lines:
            try:
                events.extend(self._event(line))
            except (NoEvent, UnknownType, Malformed) as error:
                if self._rules.on_bad_line is OnBadLine.STOP:
                    if last is None:
                        raise self._stopped(portion, line, error) from error
                    break
                events.extend(self._unparsed(portion, line, error))
            last = line
        if last is not None:
            note = Note(self._name, portion.position_after(last).encode())
            self._emitter.keep(events, note=note)
            self._at = portion.generation.path
        return Step(len(events), is_idle=False)

    def _event(self, line: TailLine) -> Iterator[Addressed]:
        if line.is_cut:
            raise NoEvent(f"a line of more than {CHUNK_BYTES} bytes")
        if line.raw.strip():
            yield self._emitter.address(self._rules.form.read(line.raw))

    def _unparsed(self, portion: Portion, line: TailLine, why: VeenError) -> Iterator[Addressed]:
        """The line as it is, in as many pieces as the bound of its stream asks for."""
        bound = self._emitter.streams.stream_of(UNPARSED).max_payload_bytes
        file = portion.generation.path.name
        # Whatever the bytes are, one of them is at most four signs of text.
        size = max(1, (bound - _AROUND_TEXT - _SHOWN - 2 * len(file.encode())) // 4)
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

    def _stopped(self, portion: Portion, line: TailLine, error: VeenError) -> TailStopped:
        shown = line.raw[:_SHOWN].decode("utf-8", "backslashreplace").rstrip("\n")
        return TailStopped(
            f"{portion.generation.path}, byte {line.offset}: no event: {error}; the line is "
            f"{shown!r}; all before it is kept. Record such lines with --on-bad-line record"
        )


def _short(text: str) -> str:
    return text.encode("ascii", "backslashreplace")[:_SHOWN].decode()
