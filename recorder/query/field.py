"""The fields of an event that a query can name, and paths into its payload (Query API 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from recorder.query.refusal import invalid
from veen.cbor import MAX_DEPTH

STREAM: Final = "stream"
SEQ: Final = "hub_commit_seq"
COMMIT_TIME: Final = "hub_commit_time"
SUBJECT: Final = "subject_id"
PRINCIPAL: Final = "principal_id"
EVENT_TYPE: Final = "event_type"
EVENT_TIME: Final = "event_time"
ORIGIN: Final = "origin"
PAYLOAD: Final = "payload"
RECEIPT: Final = "receipt_id"

ALL: Final = (
    STREAM, SEQ, COMMIT_TIME, SUBJECT, PRINCIPAL, EVENT_TYPE, EVENT_TIME, ORIGIN, PAYLOAD, RECEIPT,
)  # fmt: skip
"""What ["*"] stands for, in this order."""

SOURCE_HUB: Final = "source_hub_id"
SOURCE_STREAM: Final = "source_stream"
SOURCE_SEQ: Final = "source_commit_seq"
SOURCE_TIME: Final = "source_commit_time"
SOURCE_RECEIPT: Final = "source_receipt_id"

OF_SOURCE: Final = (SOURCE_HUB, SOURCE_STREAM, SOURCE_SEQ, SOURCE_TIME, SOURCE_RECEIPT)
"""The place of an imported event at its origin; ["*"] has these too where an import/ stream is in
the scope. They are null for an event that was recorded at the hub that was asked.
"""

_PATH: Final = PAYLOAD + "."
_MAX_BYTES: Final = 1024
_ESCAPED: Final = ".\\*"


@dataclass(frozen=True, slots=True)
class Field:
    """``text`` is the field's one name. ``path`` leads into the payload; empty, it is all of it."""

    text: str
    path: tuple[str, ...] = ()

    @property
    def is_path(self) -> bool:
        return bool(self.path)

    def within(self, payload: Any) -> Any:
        """What stands at the path, or None when nothing does."""
        found = payload
        for element in self.path:
            found = _step(found, element)
        return found


def read_field(value: Any, place: str) -> Field:
    """The field of that name, or BadDescriptor; ``payload.*`` is another name for ``payload``."""
    if not isinstance(value, str):
        raise invalid(f"{place} names a field with a text, not with {value!r:.60}")
    if len(value.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise invalid(f"{place} names a field with more than {_MAX_BYTES} bytes")
    if value in ALL or value in OF_SOURCE:
        return Field(value)
    if value == _PATH + "*":
        return Field(PAYLOAD)
    if not value.startswith(_PATH):
        raise invalid(
            f"{place} names {value!r:.80}, which no event has; there are "
            f"{', '.join((*ALL, *OF_SOURCE))} and payload.<path>"
        )
    return Field(value, _split(value.removeprefix(_PATH), place))


def _split(text: str, place: str) -> tuple[str, ...]:
    elements, element, rest = [], "", iter(text)
    for letter in rest:
        if letter == ".":
            elements.append(element)
            element = ""
        elif letter == "*":
            raise invalid(
                f"{place} has a wildcard in payload.{text:.80}; a key of that name is \\*"
            )
        else:
            element += _unescaped(next(rest, ""), place) if letter == "\\" else letter
    elements.append(element)
    if "" in elements:
        raise invalid(f"{place} has an empty step in payload.{text:.80}")
    if len(elements) > MAX_DEPTH:
        raise invalid(f"{place} has a path deeper than a payload, which has {MAX_DEPTH} levels")
    return tuple(elements)


def _unescaped(letter: str, place: str) -> str:
    if not letter or letter not in _ESCAPED:
        raise invalid(f"{place} has a backslash before {letter!r}; it stands before . \\ or *")
    return letter


def _step(value: Any, element: str) -> Any:
    if isinstance(value, dict):
        return value.get(element)
    if isinstance(value, list) and _is_index(element) and int(element) < len(value):
        return value[int(element)]
    return None


def _is_index(element: str) -> bool:
    """Digits without a leading zero; no payload has an index of more than nine."""
    plain = element.isascii() and element.isdigit() and len(element) <= 9
    return plain and (element == "0" or element[0] != "0")
