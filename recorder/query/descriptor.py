"""The QueryDescriptor: a query in its one normalised form (Query API 4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from recorder.query.field import ALL, OF_SOURCE, Field, read_field
from recorder.query.filter import Filter, members, read_filter
from recorder.query.json_text import DEFAULT_LIMITS, JsonLimits, parse_json
from recorder.query.metric import Aggregate, read_aggregate, refuse_doubles
from recorder.query.refusal import BadDescriptor, Refusal, invalid
from veen import canonical_json
from veen.digest import h
from veen.errors import Malformed
from veen.import_event import is_import
from veen.stream import MAX_NAME, is_name

__all__ = [
    "DEFAULT_LIMITS", "BadDescriptor", "Descriptor", "Evidence", "JsonLimits", "Mode", "normalise",
    "parse_json", "read_descriptor",
]  # fmt: skip

Mode = Literal["none", "spot", "full"]
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


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence policy; ``sample_rate`` is there for spot alone."""

    mode: Mode
    sample_rate: float | None = None

    def document(self) -> dict[str, Any]:
        if self.sample_rate is None:
            return {"mode": self.mode}
        return {"mode": self.mode, "sample_rate": self.sample_rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """A valid query. ``scope`` is sorted, ``projection`` has no wildcard."""

    query_id: str
    version: int = VERSION
    scope: tuple[str, ...]
    filter: Filter
    projection: tuple[str, ...]
    fields: tuple[Field, ...]
    aggregate: Aggregate | None
    evidence: Evidence
    meta: dict[str, Any] | None

    def document(self) -> dict[str, Any]:
        found = {
            "query_id": self.query_id,
            "version": self.version,
            "scope": list(self.scope),
            "filter": self.filter.document(),
            "projection": list(self.projection),
            "evidence": self.evidence.document(),
        }
        if self.aggregate is not None:
            found["aggregate"] = self.aggregate.document()
        if self.meta is not None:
            found["meta"] = self.meta
        return found

    def encode(self) -> bytes:
        """Canonical JSON, which is what is recorded and hashed."""
        return canonical_json.encode(self.document())

    def digest(self) -> str:
        """The hash by which a result names what was asked."""
        return h(self.encode()).hex()


def normalise(value: Any, *, query_id_if_missing: str) -> Descriptor:
    """The descriptor that ``value`` asks for, defaults filled in, or BadDescriptor."""
    if not isinstance(value, dict):
        raise invalid("a descriptor is a JSON object")
    _verify_version(value.get("version", VERSION))
    found = members(value, "the descriptor", _KEYS)
    lacking = [key for key in _REQUIRED if found.get(key) is None]
    if lacking:
        raise invalid(f"the descriptor lacks {lacking[0]}")
    scope = _scope(found["scope"])
    fields = _projection(found["projection"], scope)
    aggregate = found.get("aggregate")
    descriptor = Descriptor(
        query_id=_query_id(found.get("query_id"), query_id_if_missing),
        scope=scope,
        filter=read_filter(found["filter"]),
        projection=tuple(field.text for field in fields),
        fields=fields,
        aggregate=None if aggregate is None else read_aggregate(aggregate),
        evidence=read_evidence(found["evidence"]),
        meta=_meta(found.get("meta")),
    )
    _verify_encodable(descriptor)
    return descriptor


def read_descriptor(value: Any) -> Descriptor:
    """A descriptor that is normalised already, or BadDescriptor."""
    found = normalise(value, query_id_if_missing="")
    if canonical_json.encode(value) != found.encode():
        raise invalid("a descriptor that is not normalised")
    return found


def read_evidence(value: Any) -> Evidence:
    found = members(value, "evidence", ("mode", "sample_rate"))
    mode: Any = found.get("mode")
    rate: Any = found.get("sample_rate")
    match mode:
        case "none" | "full":
            if rate is not None:
                raise invalid(f"evidence.sample_rate goes with spot, not with {mode}")
            return Evidence(mode)
        case "spot":
            if type(rate) not in (int, float) or not 0 < rate <= 1:
                raise invalid("evidence.sample_rate must be a number above 0 and up to 1")
            return Evidence(mode, float(rate))
    raise invalid(f"evidence.mode is none, spot or full, not {mode!r:.60}")


def _verify_version(value: Any) -> None:
    if type(value) is not int:
        raise invalid("version must be an integer")
    if value != VERSION:
        raise BadDescriptor(
            Refusal.UNSUPPORTED_VERSION, f"version {value} of a descriptor; version 1 is read"
        )


def _query_id(value: Any, if_missing: str) -> str:
    found = if_missing if value is None else value
    if not isinstance(found, str) or not _QUERY_ID.fullmatch(found):
        raise invalid("query_id has 1 to 128 of the characters A-Z a-z 0-9 . _ : -")
    return found


def _scope(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_SCOPE:
        raise invalid(f"scope must be a list of 1 to {_MAX_SCOPE} streams")
    for name in value:
        _verify_stream(name)
    refuse_doubles(value, "scope")
    return tuple(sorted(value, key=str.encode))


def _verify_stream(name: Any) -> None:
    if not isinstance(name, str) or not is_name(name):
        raise invalid(f"scope names a stream with 1 to {MAX_NAME} printable characters")
    if _WILDCARDS.search(name):
        raise invalid(f"scope has a wildcard in {name!r}; name each stream")
    if _ID_IN_HEX.fullmatch(name):
        raise invalid("scope has a stream by its identifier; give its name")


def _projection(value: Any, scope: tuple[str, ...]) -> tuple[Field, ...]:
    if value == ["*"]:
        value = [*ALL, *(OF_SOURCE if any(map(is_import, scope)) else ())]
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_PROJECTION:
        raise invalid(f"projection must be a list of 1 to {_MAX_PROJECTION} fields")
    fields = tuple(read_field(one, "projection") for one in value)
    refuse_doubles([field.text for field in fields], "projection")
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
