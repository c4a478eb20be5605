"""JSON lines from a file or a pipe, kept and sent in portions (``veen recorder emit``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple

from recorder.emit.emitter import Addressed, Emitter
from recorder.emit.line import LineForm
from recorder.emit.observation import NoEvent
from recorder.stream_map import UnknownType
from veen.errors import Malformed, VeenError

MAX_LINE_BYTES: Final = 8 << 20
"""No line that holds an event is longer: the largest payload, with every sign escaped."""

PORTION: Final = 1_024
_PORTION_BYTES: Final = 16 << 20
_SHOWN: Final = 200


class BadLine(VeenError):
    """A line that is no event: which one, and what is wrong with it."""

    def __init__(self, number: int, told: str) -> None:
        super().__init__(
            f"line {number}: {told}; all lines before it are kept: "
            f"correct it and go on with --from-line {number}"
        )
        self.number = number


class Line(NamedTuple):
    number: int
    event: Addressed


@dataclass(frozen=True, slots=True)
class Emitted:
    """How many events were kept, and how many of all that the outbox held have landed."""

    kept: int
    landed: int


def lines_of(source: BinaryIO, from_line: int = 1) -> Iterator[tuple[int, bytes]]:
    """The lines of a source with their numbers; an empty one has a number and is left out."""
    number = 0
    while raw := source.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number < from_line:
            _skip_rest(source, raw)
            continue
        if len(raw) > MAX_LINE_BYTES:
            raise BadLine(number, f"longer than {MAX_LINE_BYTES} bytes")
        if raw.strip():
            yield number, raw


def emit_lines(emitter: Emitter, lines: Iterable[tuple[int, bytes]], form: LineForm) -> Emitted:
    """Keep every line as an event and send them, a portion at a time.

    A bad line ends it, with all before it kept and sent. If events cannot be sent, the lines are
    kept all the same, and why is raised once all of them are.
    """
    kept = landed = 0
    trouble: VeenError | None = None
    for portion, fault in _portions(emitter, lines, form):
        kept += _kept(emitter, portion)
        if trouble is None:
            try:
                landed += emitter.flush().landed
            except VeenError as error:
                trouble = error
        if fault is not None:
            trouble = _joined(fault, trouble)
    if trouble is not None:
        trouble.add_note(f"{kept} events were kept; {emitter.pending()} wait in the outbox")
        raise trouble
    return Emitted(kept, landed)


def _kept(emitter: Emitter, portion: list[Line]) -> int:
    try:
        return len(emitter.keep([one.event for one in portion]))
    except VeenError as error:
        error.add_note(f"nothing from line {portion[0].number} on is kept")
        raise


def _joined(fault: BadLine, trouble: VeenError | None) -> BadLine:
    if trouble is not None:
        fault.add_note(str(trouble))
    return fault


def _portions(
    emitter: Emitter, lines: Iterable[tuple[int, bytes]], form: LineForm
) -> Iterator[tuple[list[Line], BadLine | None]]:
    """Lists of events; the last of them ends where a line is bad."""
    portion: list[Line] = []
    size = 0
    try:
        for number, raw in lines:
            line = Line(number, _event(emitter, number, raw, form))
            portion.append(line)
            size += len(line.event.body)
            if len(portion) == PORTION or size >= _PORTION_BYTES:
                yield portion, None
                portion, size = [], 0
    except BadLine as error:
        yield portion, error
        return
    if portion:
        yield portion, None


def _event(emitter: Emitter, number: int, raw: bytes, form: LineForm) -> Addressed:
    try:
        return emitter.address(form.read(raw))
    except (NoEvent, UnknownType, Malformed) as error:
        raise BadLine(number, str(error)[:_SHOWN]) from error


def _skip_rest(source: BinaryIO, raw: bytes) -> None:
    while raw and not raw.endswith(b"\n"):
        raw = source.readline(MAX_LINE_BYTES)
