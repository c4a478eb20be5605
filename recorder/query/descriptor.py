"""The QueryDescriptor: a query in its normalised form (Query API 4).

Untrusted JSON is parsed within bounds, and canonical JSON must re-encode to the same bytes (Query
API 3.1). Each member of an object must be present and of its type; unknown members are refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, Never

from recorder import timestamp
from recorder.query.filter import (
    ALL,
    OF_SOURCE,
    Aggregate,
    Filter,
    QueryField,
    members,
    read_aggregate,
    read_field,
    read_filter,
    verify_unique,
)
from recorder.service.errors import BadDescriptor, DescriptorFault, invalid
from veen.digest import h
from veen.errors import Malformed
from veen.events import is_import
from veen.label import MAX_NAME, is_name
from veen.wire import canonical_json

SAFE_INTEGER: Final = 2**53 - 1
"""The largest absolute value of an integer in canonical JSON."""
_SAFE_DIGITS: Final = 17  # sixteen digits and a sign
# A string, terminated or not, is one token, so that brackets in it do not count.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
VERSION: Final = 1
_KEYS: Final = (
    "query_id", "version", "scope", "filter", "projection", "aggregate", "evidence", "meta",
)  # fmt: skip
_REQUIRED: Final = ("scope", "filter", "projection", "evidence")
_QUERY_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_ID_IN_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
_WILDCARDS: Final = re.compile(r"[*?\[\]]")
_MAX_SCOPE: Final = 256
_MAX_PROJECTION: Final = 256
_HEX: Final = frozenset("0123456789abcdef")
_HASH_DIGITS: Final = 64
_MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    """Bounds for untrusted JSON."""

    max_bytes: int = 65_536
    max_depth: int = 32


DEFAULT_LIMITS: Final = JsonLimits()


def parse_json(raw: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Any:
    """Parse untrusted JSON; the only error is BadDescriptor with ``invalid_json``."""
    try:
        return _parse(raw, limits)
    except Malformed as error:
        raise BadDescriptor(DescriptorFault.INVALID_JSON, f"not valid JSON: {error}") from error


def read_canonical(raw: bytes, limits: JsonLimits) -> Any:
    """Parse canonical JSON; Malformed when ``raw`` is not the canonical form of its value."""
    value = _load(raw, limits, _any_integer)
    if canonical_json.encode(value) != raw:
        raise Malformed("expected canonical JSON, got another form of the same value")
    return value


def read_row(raw: bytes) -> dict[str, Any]:
    """Parse a row that this program wrote, without verifying it again.

    ``json.loads`` alone would read large doubles as integers that cannot be written.
    """
    document: dict[str, Any] = json.loads(raw, parse_int=_any_integer)
    return document


def _parse(raw: bytes, limits: JsonLimits) -> Any:
    value = _load(raw, limits, _safe_integer)
    # Encoding detects strings with a lone surrogate.
    canonical_json.encode(value)
    return value


def _load(raw: bytes, limits: JsonLimits, parse_int: Callable[[str], Any]) -> Any:
    if len(raw) > limits.max_bytes:
        raise Malformed(f"expected at most {limits.max_bytes} bytes, got {len(raw)}")
    _verify_depth(raw, limits.max_depth)
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


def _verify_depth(raw: bytes, max_depth: int) -> None:
    """Count brackets outside strings first, since the parser recurses with each of them."""
    depth = 0
    for token in _TOKENS.finditer(raw):
        first = token[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        if depth > max_depth:
            raise Malformed(
                f"expected at most {max_depth} levels, got more at byte {token.start()}"
            )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise Malformed(f"key {key!r:.80} occurs twice in an object")
        members[key] = value
    return members


def _refuse_constant(text: str) -> Never:
    raise Malformed(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Malformed(f"{text[:32]} is too large for a number")
    return number


def _safe_integer(text: str) -> int:
    if len(text) > _SAFE_DIGITS or abs(int(text)) > SAFE_INTEGER:
        raise Malformed(f"{text[:32]} is beyond the integers of canonical JSON; write it as text")
    return int(text)


def _any_integer(text: str) -> int | float:
    """A double beyond 2^53 is written like an integer, and only a double is written so."""
    if len(text) > _SAFE_DIGITS or abs(int(text)) > SAFE_INTEGER:
        return _finite(text)
    return int(text)


Mode = Literal["none", "spot", "full"]


@dataclass(frozen=True, slots=True)
class EvidencePolicy:
    """The evidence policy; ``sample_rate`` is set for spot only."""

    mode: Mode
    sample_rate: float | None = None

    def document(self) -> dict[str, Any]:
        if self.sample_rate is None:
            return {"mode": self.mode}
        return {"mode": self.mode, "sample_rate": self.sample_rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A valid query; ``scope`` is sorted, ``projection`` has no wildcard."""

    query_id: str
    version: int = VERSION
    scope: tuple[str, ...]
    filter: Filter
    projection: tuple[str, ...]
    fields: tuple[QueryField, ...]
    aggregate: Aggregate | None
    evidence: EvidencePolicy
    meta: dict[str, Any] | None

    def document(self) -> dict[str, Any]:
        document = {
            "query_id": self.query_id,
            "version": self.version,
            "scope": list(self.scope),
            "filter": self.filter.document(),
            "projection": list(self.projection),
            "evidence": self.evidence.document(),
        }
        if self.aggregate is not None:
            document["aggregate"] = self.aggregate.document()
        if self.meta is not None:
            document["meta"] = self.meta
        return document

    def encode(self) -> bytes:
        """Canonical JSON, as recorded and hashed."""
        return canonical_json.encode(self.document())

    def digest(self) -> str:
        """The hash by which a result refers to its query."""
        return h(self.encode()).hex()


def normalise(value: Any, *, query_id_if_missing: str) -> Descriptor:
    """Return the descriptor of ``value`` with defaults filled in, or raise BadDescriptor."""
    if not isinstance(value, dict):
        raise invalid("a descriptor is a JSON object")
    _verify_version(value.get("version", VERSION))
    document = members(value, "the descriptor", _KEYS)
    lacking = [key for key in _REQUIRED if document.get(key) is None]
    if lacking:
        raise invalid(f"the descriptor: {lacking[0]} is missing")
    scope = _scope(document["scope"])
    fields = _projection(document["projection"], scope)
    aggregate = document.get("aggregate")
    descriptor = Descriptor(
        query_id=_query_id(document.get("query_id"), query_id_if_missing),
        scope=scope,
        filter=read_filter(document["filter"]),
        projection=tuple(field.text for field in fields),
        fields=fields,
        aggregate=None if aggregate is None else read_aggregate(aggregate),
        evidence=read_evidence(document["evidence"]),
        meta=_meta(document.get("meta")),
    )
    _verify_encodable(descriptor)
    return descriptor


def read_descriptor(value: Any) -> Descriptor:
    """Return a descriptor that is already normalised, or raise BadDescriptor."""
    descriptor = normalise(value, query_id_if_missing="")
    if canonical_json.encode(value) != descriptor.encode():
        raise invalid("a descriptor that is not normalised")
    return descriptor


def read_evidence(value: Any) -> EvidencePolicy:
    policy = members(value, "evidence", ("mode", "sample_rate"))
    mode: Any = policy.get("mode")
    rate: Any = policy.get("sample_rate")
    match mode:
        case "none" | "full":
            if rate is not None:
                raise invalid(f"evidence.sample_rate goes with spot, not with {mode}")
            return EvidencePolicy(mode)
        case "spot":
            if type(rate) not in (int, float) or not 0 < rate <= 1:
                raise invalid("evidence.sample_rate must be a number above 0 and up to 1")
            return EvidencePolicy(mode, float(rate))
    raise invalid(f"evidence.mode is none, spot or full, not {mode!r:.60}")


def _verify_version(value: Any) -> None:
    if type(value) is not int:
        raise invalid("version must be an integer")
    if value != VERSION:
        raise BadDescriptor(
            DescriptorFault.UNSUPPORTED_VERSION,
            f"version: expected 1, got {value}",
        )


def _query_id(value: Any, if_missing: str) -> str:
    query_id = if_missing if value is None else value
    if not isinstance(query_id, str) or not _QUERY_ID.fullmatch(query_id):
        raise invalid("query_id: expected 1 to 128 of the characters A-Z a-z 0-9 . _ : -")
    return query_id


def _scope(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_SCOPE:
        raise invalid(f"scope must be a list of 1 to {_MAX_SCOPE} streams")
    for name in value:
        _verify_stream(name)
    verify_unique(value, "scope")
    return tuple(sorted(value, key=str.encode))


def _verify_stream(name: Any) -> None:
    if not isinstance(name, str) or not is_name(name):
        raise invalid(f"scope: expected names of 1 to {MAX_NAME} printable characters")
    if _WILDCARDS.search(name):
        raise invalid(f"scope has a wildcard in {name!r}; name each stream")
    if _ID_IN_HEX.fullmatch(name):
        raise invalid("scope has a stream by its identifier; give its name")


def _projection(value: Any, scope: tuple[str, ...]) -> tuple[QueryField, ...]:
    if value == ["*"]:
        value = [*ALL, *(OF_SOURCE if any(map(is_import, scope)) else ())]
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_PROJECTION:
        raise invalid(f"projection must be a list of 1 to {_MAX_PROJECTION} fields")
    fields = tuple(read_field(name, "projection") for name in value)
    verify_unique([field.text for field in fields], "projection")
    return fields


def _meta(value: Any) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise invalid("meta must be an object")
    return value


def _verify_encodable(descriptor: Descriptor) -> None:
    try:
        descriptor.encode()
    except Malformed as error:
        raise invalid(f"the descriptor has no canonical JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class DescriptorShape:
    """A JSON object read member by member.

    Each accessor returns a valid value or raises Malformed.
    """

    place: str
    members: dict[str, Any]

    @classmethod
    def of(cls, value: Any, place: str, keys: Iterable[str]) -> DescriptorShape:
        if not isinstance(value, dict) or set(value) != set(keys):
            raise Malformed(f"{place}: expected an object of {', '.join(sorted(keys))}")
        return cls(place, value)

    def value(self, key: str) -> Any:
        return self.members[key]

    def number(self, key: str) -> int:
        number = self.members[key]
        if type(number) is not int or number < 0:
            raise self._malformed(key, "a whole number")
        return number

    def name(self, key: str) -> str:
        name = self.members[key]
        if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME:
            raise self._malformed(key, f"a text of 1 to {_MAX_NAME} characters")
        return name

    def octets(self, key: str) -> bytes:
        text = self.members[key]
        if not isinstance(text, str) or len(text) % 2 or set(text) - _HEX:
            raise self._malformed(key, "lowercase hex")
        return bytes.fromhex(text)

    def hash(self, key: str) -> str:
        if len(self.octets(key)) * 2 != _HASH_DIGITS:
            raise self._malformed(key, "a hash in lowercase hex")
        return str(self.members[key])

    def time(self, key: str) -> str:
        name = self.name(key)
        if timestamp.render(timestamp.parse(name)) != name:
            raise self._malformed(key, "a timestamp with three decimals")
        return name

    def array(self, key: str) -> list[Any]:
        array = self.members[key]
        if not isinstance(array, list):
            raise self._malformed(key, "an array")
        return array

    def _malformed(self, key: str, expected: str) -> Malformed:
        return Malformed(f"{self.place}: {key} must be {expected}")
