"""From a record of Python's logging to an observation."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from typing import Any, Final

from recorder.emit.observation import Observation
from veen import json_body
from veen.errors import Malformed

LOG_LINE: Final = "log.line"
_OWN_FIELDS: Final = frozenset(
    [*logging.LogRecord("", 0, "", 0, "", None, None).__dict__, "message", "asctime", "taskName"]
)
_NAMED: Final = ("event_type", "subject_id", "origin")
_CUT_TEXT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRule:
    """Records of a logger and those below it, from a level on; what is None is left as it is."""

    logger: str = ""
    level: int = logging.NOTSET
    event_type: str | None = None
    subject_id: str | None = None
    origin: str | None = None

    def speaks_of(self, record: logging.LogRecord) -> bool:
        is_below = not self.logger or f"{record.name}.".startswith(f"{self.logger}.")
        return is_below and record.levelno >= self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMapping:
    """The first rule that speaks of a record decides; its own ``extra`` stands above all."""

    subject_id: str
    origin: str
    event_type: str = LOG_LINE
    rules: tuple[LogRule, ...] = ()

    def observation(self, record: logging.LogRecord) -> Observation:
        payload: dict[str, Any] = {
            "message": _text(record.getMessage()),
            "logger": _text(record.name),
            "level": _text(record.levelname),
            "file": _text(record.pathname),
            "line": record.lineno,
            "process": record.process,
            "thread": _text(record.threadName or ""),
        }
        if record.exc_info and record.exc_info[0] is not None:
            payload["exception"] = _text("".join(traceback.format_exception(*record.exc_info)))
        elif record.exc_text:
            payload["exception"] = _text(record.exc_text)
        if record.stack_info:
            payload["stack"] = _text(record.stack_info)
        extra = {name: _json(value) for name, value in record.__dict__.items() if _is_extra(name)}
        if extra:
            payload["extra"] = extra
        return Observation(
            **self._names(record), payload=payload, event_time=int(record.created * 1000)
        )

    def _names(self, record: logging.LogRecord) -> dict[str, Any]:
        rule = next((one for one in self.rules if one.speaks_of(record)), LogRule())
        return {
            name: record.__dict__.get(name) or getattr(rule, name) or getattr(self, name)
            for name in _NAMED
        }


def cut(observed: Observation, bound: int) -> Observation:
    """The same event with as much of its message as surely fits."""
    message = observed.payload["message"]
    kept = message.encode()[: max(0, bound // _CUT_TEXT - _CUT_TEXT * 32)]
    payload = {
        "message": kept.decode(errors="ignore"),
        "level": observed.payload["level"],
        "cut": True,
    }
    return Observation(
        event_type=observed.event_type,
        subject_id=observed.subject_id,
        origin=observed.origin,
        payload=payload,
        event_time=observed.event_time,
    )


def _is_extra(name: str) -> bool:
    return name not in _OWN_FIELDS and name not in _NAMED


def _json(value: Any) -> Any:
    """The value where it is JSON; its text where it is not."""
    try:
        json_body.encode_value(value)
    except Malformed:
        return _text(repr(value))
    return value


def _text(text: str) -> str:
    """Without halves of signs, which JSON does not have."""
    return text.encode("utf-8", "backslashreplace").decode()
