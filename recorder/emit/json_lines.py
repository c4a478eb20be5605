"""JSON lines from a file or a pipe, kept and sent in portions (``veen recorder emit``).

One line of JSON as an observation: which of its fields say what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, NamedTuple

from recorder.emit.emitter import Addressed, Emitter, NoEvent, Observation
from recorder.stream_map import UnknownType
from recorder.timestamp import TimeUnit, event_time
from veen.errors import Malformed, VeenError
from veen.wire.canonical_json import parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class LineForm:
    """Names of the fields, and what holds for a line that lacks one.

    With ``payload`` a line has these fields and no others; without, whatever else it has is the
    payload.
    """

    event_type: str = "event_type"
    subject_id: str = "subject_id"
    origin: str = "origin"
    event_time: str = "event_time"
    payload: str | None = "payload"
    time_unit: TimeUnit = TimeUnit.MS
    default_type: str | None = None
    default_subject: str | None = None
    default_origin: str | None = None

    def read(self, raw: bytes) -> Observation:
        """The observation that a line is; NoEvent says what is wrong with it."""
        try:
            value = parse_json(raw)
        except Malformed as error:
            raise NoEvent(str(error)) from error
        if not isinstance(value, dict):
            raise NoEvent(f"a JSON object is due, not a {type(value).__name__}")
        when = value.pop(self.event_time, None)
        return Observation(
            event_type=_text(value, self.event_type, self.default_type),
            subject_id=_text(value, self.subject_id, self.default_subject),
            origin=_text(value, self.origin, self.default_origin),
            event_time=None if when is None else event_time(when, self.time_unit),
            payload=value if self.payload is None else self._only_payload(value),
        )

    def _only_payload(self, left: dict[str, Any]) -> Any:
        if self.payload not in left:
            raise NoEvent(f"{self.payload!r} is missing")
        payload = left.pop(self.payload)
        if left:
            names = (self.event_type, self.subject_id, self.origin, self.event_time, self.payload)
            raise NoEvent(f"unknown key {min(left)!r}; known are {', '.join(names)}")
        return payload


def _text(value: dict[str, Any], name: str, default: str | None) -> str:
    result = value.pop(name, default)
    if result is None:
        raise NoEvent(f"{name!r} is missing")
    if type(result) is not str or not result:
        raise NoEvent(f"{name!r} = {result!r:.80}: a text that is not empty is due")
    return result


MAX_LINE_BYTES: Final = 8 << 20
"""No line that holds an event is longer: the largest payload, with every sign escaped."""

PORTION: Final = 1_024
_PORTION_BYTES: Final = 16 << 20
_SHOWN: Final = 200


class BadLine(VeenError):
    """A line that is no event: which one, and what is wrong with it."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(
            f"line {number}: {detail}; all lines before it are kept: "
            f"correct it and go on with --from-line {number}"
        )
        self.number = number


class JsonLine(NamedTuple):
    number: int
    event: Addressed


@dataclass(frozen=True, slots=True)
class Emitted:
    """How many events were kept, and how many of all that the outbox held have landed."""

    stored: int
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
    stored = landed = 0
    trouble: VeenError | None = None
    for batch, fault in _batches(emitter, lines, form):
        stored += _stored(emitter, batch)
        if trouble is None:
            try:
                landed += emitter.flush().landed
            except VeenError as error:
                trouble = error
        if fault is not None:
            trouble = _joined(fault, trouble)
    if trouble is not None:
        trouble.add_note(f"{stored} events were kept; {emitter.pending()} wait in the outbox")
        raise trouble
    return Emitted(stored, landed)


def _stored(emitter: Emitter, batch: list[JsonLine]) -> int:
    try:
        return len(emitter.keep([json_line.event for json_line in batch]))
    except VeenError as error:
        error.add_note(f"nothing from line {batch[0].number} on is kept")
        raise


def _joined(fault: BadLine, trouble: VeenError | None) -> BadLine:
    if trouble is not None:
        fault.add_note(str(trouble))
    return fault


def _batches(
    emitter: Emitter, lines: Iterable[tuple[int, bytes]], form: LineForm
) -> Iterator[tuple[list[JsonLine], BadLine | None]]:
    """Lists of events; the last of them ends where a line is bad."""
    batch: list[JsonLine] = []
    size = 0
    try:
        for number, raw in lines:
            line = JsonLine(number, _event(emitter, number, raw, form))
            batch.append(line)
            size += len(line.event.body)
            if len(batch) == PORTION or size >= _PORTION_BYTES:
                yield batch, None
                batch, size = [], 0
    except BadLine as error:
        yield batch, error
        return
    if batch:
        yield batch, None


def _event(emitter: Emitter, number: int, raw: bytes, form: LineForm) -> Addressed:
    try:
        return emitter.address(form.read(raw))
    except (NoEvent, UnknownType, Malformed) as error:
        raise BadLine(number, str(error)[:_SHOWN]) from error


def _skip_rest(source: BinaryIO, raw: bytes) -> None:
    while raw and not raw.endswith(b"\n"):
        raw = source.readline(MAX_LINE_BYTES)
