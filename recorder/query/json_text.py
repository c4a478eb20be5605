"""JSON from outside, read within bounds, and canonical JSON read back (Query API 3.1)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Never

from recorder.query.refusal import BadDescriptor, Refusal
from veen import canonical_json
from veen.errors import Malformed

SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that canonical JSON has, and the smallest but for its sign."""
_SAFE_DIGITS: Final = 17  # sixteen digits and a sign
# A string, closed or not, is one token; what brackets it holds do not count.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    max_bytes: int = 65_536
    max_depth: int = 32


DEFAULT_LIMITS: Final = JsonLimits()


def parse_json(raw: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Any:
    """The value of a JSON text, or BadDescriptor with ``invalid_json``: nothing else is raised."""
    try:
        return _parse(raw, limits)
    except Malformed as error:
        raise BadDescriptor(Refusal.INVALID_JSON, f"no JSON that can be read: {error}") from error


def read_canonical(raw: bytes, limits: JsonLimits) -> Any:
    """The value of which ``raw`` is the canonical JSON, or Malformed when it is of none."""
    value = _load(raw, limits, _any_integer)
    if canonical_json.encode(value) != raw:
        raise Malformed("not the canonical JSON of its value")
    return value


def read_row(raw: bytes) -> dict[str, Any]:
    """A row from the canonical JSON that this program wrote; nothing is checked again.

    ``json.loads`` would not do: it reads large doubles as integers that cannot be written.
    """
    found: dict[str, Any] = json.loads(raw, parse_int=_any_integer)
    return found


def _parse(raw: bytes, limits: JsonLimits) -> Any:
    value = _load(raw, limits, _safe_integer)
    # Strings with half a surrogate pair are found where they would be written again.
    canonical_json.encode(value)
    return value


def _load(raw: bytes, limits: JsonLimits, parse_int: Callable[[str], Any]) -> Any:
    if len(raw) > limits.max_bytes:
        raise Malformed(f"{len(raw)} bytes, of which {limits.max_bytes} are allowed")
    _refuse_depth(raw, limits.max_depth)
    try:
        return json.loads(
            raw.decode(),
            object_pairs_hook=_object,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=parse_int,
        )
    except Malformed:
        raise
    except ValueError as error:
        raise Malformed(str(error)) from error


def _refuse_depth(raw: bytes, max_depth: int) -> None:
    """Count brackets outside strings first: the parser would go down with each of them."""
    depth = 0
    for token in _TOKENS.finditer(raw):
        first = token[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > max_depth:
            raise Malformed(f"nested more than {max_depth} deep at byte {token.start()}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Malformed(f"key {key!r:.80} stands twice in an object")
        found[key] = value
    return found


def _refuse_constant(text: str) -> Never:
    raise Malformed(f"{text} is a number that JSON does not have")


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise Malformed(f"{text[:32]} is too large for a number")
    return found


def _safe_integer(text: str) -> int:
    if len(text) > _SAFE_DIGITS or abs(int(text)) > SAFE_INTEGER:
        raise Malformed(f"{text[:32]} is beyond the integers of canonical JSON; write it as text")
    return int(text)


def _any_integer(text: str) -> int | float:
    """A double beyond 2^53 is written like an integer, and only a double is written so."""
    if len(text) > _SAFE_DIGITS or abs(int(text)) > SAFE_INTEGER:
        return _finite(text)
    return int(text)
