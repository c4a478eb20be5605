"""JSON read as strictly as CBOR: no doubled keys, no floats, no numbers that are none."""

from __future__ import annotations

import json
from typing import Any, Never

from veen.errors import Malformed


class TooManyValues(Malformed):
    """More values than a request can mean; none of them was made."""


def loads(raw: bytes, max_values: int) -> Any:
    """The value of a JSON text of at most ``max_values`` values.

    A value of two bytes takes up to a hundred in memory, so they are counted before they are made:
    each but the first follows a comma, a bracket or a brace. A text with such characters inside
    strings counts as more than it has.
    """
    count = raw.count(b",") + raw.count(b"[") + raw.count(b"{")
    if count > max_values:
        raise TooManyValues(f"JSON of {count} values or more, {max_values} are allowed")
    try:
        return json.loads(
            raw,
            object_pairs_hook=_object,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("a key stands twice in a JSON object")
    return found


def _refuse_number(text: str) -> Never:
    raise Malformed(f"{text} is not an unsigned integer")
