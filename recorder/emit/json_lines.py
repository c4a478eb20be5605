"""JSON lines from a file or a pipe, recorded in batches (``veen recorder emit``).

Each line becomes an observation; a field map says which members are its type, time and subject.
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

MAX_LINE_BYTES: Final = 8 << 20
"""Longer than any line with an event: the largest payload with every character escaped."""
BATCH_LINES: Final = 1_024
_BATCH_BYTES: Final = 16 << 20
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LineForm:
    """Names of the fields of a line, and defaults for those that are missing.

    With ``payload`` a line has these fields and no others; without it, all other fields are the
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
        """Parse a line as an observation; NoEvent says what is wrong with it."""
        try:
            document = parse_json(raw)
        except Malformed as error:
            raise NoEvent(str(error)) from error
        if not isinstance(document, dict):
            raise NoEvent(f"expected a JSON object, got {type(document).__name__}")
        when = document.pop(self.event_time, None)
        return Observation(
            event_type=_text(document, self.event_type, self.default_type),
            subject_id=_text(document, self.subject_id, self.default_subject),
            origin=_text(document, self.origin, self.default_origin),
            event_time=None if when is None else event_time(when, self.time_unit),
            payload=document if self.payload is None else self._only_payload(document),
        )

    def _only_payload(self, rest: dict[str, Any]) -> Any:
        if self.payload not in rest:
            raise NoEvent(f"{self.payload!r} is missing")
        payload = rest.pop(self.payload)
        if rest:
            names = (self.event_type, self.subject_id, self.origin, self.event_time, self.payload)
            raise NoEvent(f"unknown key {min(rest)!r}; expected {', '.join(names)}")
        return payload


def _text(document: dict[str, Any], name: str, default: str | None) -> str:
    text = document.pop(name, default)
    if text is None:
        raise NoEvent(f"{name!r} is missing")
    if type(text) is not str or not text:
        raise NoEvent(f"{name!r}: expected text that is not empty, got {text!r:.80}")
    return text


class BadLine(VeenError):
    """A line that is not an event: its number, and what is wrong with it."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(
            f"line {number}: {detail}; all lines before it are stored; "
            f"correct it and continue with --from-line {number}"
        )
        self.number = number


class JsonLine(NamedTuple):
    number: int
    event: Addressed


@dataclass(frozen=True, slots=True)
class Emitted:
    """How many events were stored, and how many events of the outbox were acknowledged."""

    stored: int
    acknowledged: int


def lines_of(source: BinaryIO, from_line: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a source with their numbers; empty lines are counted and skipped."""
    number = 0
    while raw := source.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number < from_line:
            _skip_rest(source, raw)
            continue
        if len(raw) > MAX_LINE_BYTES:
            raise BadLine(number, f"expected at most {MAX_LINE_BYTES} bytes, got more")
        if raw.strip():
            yield number, raw


def emit_lines(emitter: Emitter, lines: Iterable[tuple[int, bytes]], form: LineForm) -> Emitted:
    """Store every line as an event and send them, batch by batch.

    A bad line stops this after all lines before it are stored and sent. If sending fails, the
    remaining lines are still stored, and the error is raised afterwards.
    """
    stored = acknowledged = 0
    failure: VeenError | None = None
    for batch, fault in _batches(emitter, lines, form):
        stored += _store(emitter, batch)
        if failure is None:
            try:
                acknowledged += emitter.flush().acknowledged
            except VeenError as error:
                failure = error
        if fault is not None:
            failure = _with_note(fault, failure)
    if failure is not None:
        failure.add_note(f"{stored} events were stored; {emitter.pending()} wait in the outbox")
        raise failure
    return Emitted(stored, acknowledged)


def _store(emitter: Emitter, batch: list[JsonLine]) -> int:
    try:
        return len(emitter.store([json_line.event for json_line in batch]))
    except VeenError as error:
        error.add_note(f"nothing from line {batch[0].number} on is stored")
        raise


def _with_note(fault: BadLine, failure: VeenError | None) -> BadLine:
    if failure is not None:
        fault.add_note(str(failure))
    return fault


def _batches(
    emitter: Emitter, lines: Iterable[tuple[int, bytes]], form: LineForm
) -> Iterator[tuple[list[JsonLine], BadLine | None]]:
    """Yield batches of events; a bad line ends the last batch and is yielded with it."""
    batch: list[JsonLine] = []
    size = 0
    try:
        for number, raw in lines:
            line = JsonLine(number, _event(emitter, number, raw, form))
            batch.append(line)
            size += len(line.event.body)
            if len(batch) == BATCH_LINES or size >= _BATCH_BYTES:
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
