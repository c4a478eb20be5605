"""JSON read as strictly as CBOR: no doubled keys, no floats, no numbers that are none."""

from __future__ import annotations

import json
from typing import Any, Never

from veen.errors import Malformed


def loads(raw: bytes) -> Any:
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
