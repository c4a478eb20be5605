"""Bodies of messages: CBOR maps with the names of their fields as keys (spec 4.7).

A subclass is a frozen dataclass that repeats the table of its schema. Keys stand in the order of
their encodings, unknown and doubled ones are refused, and an optional field is left out or null.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple, Self, get_type_hints

from veen import cbor
from veen.errors import Malformed
from veen.portable import Portable
from veen.schema import Kind, Optional, Unchecked, kind_of

_NULL = b"\xf6"


class AnyItem(bytes):
    """One item of an application's own: its framing is checked and nothing else is read."""

    __slots__ = ()

    @classmethod
    def as_kind(cls) -> Kind:
        return _Framed()


class WholeItem(AnyItem):
    """One whose framing was seen already, by whoever read or made it."""

    __slots__ = ()


class Body(Portable):
    __slots__ = ()

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        count, at = cbor.mapping(raw, 0)
        values: dict[str, Any] = {}
        for field in _layout(cls):
            if raw.startswith(field.key, at):
                values[field.name], at = field.read(raw, at + len(field.key))
            elif not field.optional:
                raise Malformed(f"{cls.__name__} lacks {field.name} at byte {at}")
        if len(values) != count:
            raise Malformed(f"{cls.__name__} has a key unknown, doubled or out of order")
        cbor.finish(raw, at)
        found = cls(**values)
        found.check()
        return found

    def encode(self) -> bytes:
        self.check()
        pairs = ((field, getattr(self, field.name)) for field in _layout(type(self)))
        return cbor.dump({f.name: f.kind.plain(value) for f, value in pairs if value is not None})

    def check(self) -> None:
        for field in _layout(type(self)):
            if field.is_checked and (value := getattr(self, field.name)) is not None:
                field.kind.check(value)
        self.rule()

    def rule(self) -> None:
        """Raise Malformed when the fields, each right by itself, do not go together."""


class Field(NamedTuple):
    name: str
    key: bytes
    kind: Kind
    optional: bool
    is_checked: bool
    """Whether a value that reads may still be wrong."""

    def read(self, raw: bytes, at: int) -> tuple[Any, int]:
        if self.optional and raw.startswith(_NULL, at):
            return None, at + 1
        return self.kind.read(raw, at)


class _Framed(Unchecked):
    def read(self, raw: bytes, at: int) -> tuple[AnyItem, int]:
        end = cbor.skip(raw, at)
        return WholeItem(raw[at:end]), end

    def plain(self, value: AnyItem) -> cbor.Verbatim:
        if not isinstance(value, WholeItem):
            cbor.finish(value, cbor.skip(value, 0))
        return cbor.Verbatim(bytes(value))

    def to_json(self, value: AnyItem) -> str:
        return value.hex()

    def from_json(self, value: Any) -> AnyItem:
        return AnyItem.fromhex(value)


_LAYOUTS: dict[type[Body], tuple[Field, ...]] = {}


def _layout(cls: type[Body]) -> tuple[Field, ...]:
    try:
        return _LAYOUTS[cls]
    except KeyError:
        return _LAYOUTS.setdefault(cls, _lay_out(cls))


def _lay_out(cls: Any) -> tuple[Field, ...]:
    hints = get_type_hints(cls, include_extras=True)
    found = (_field(one.name, hints[one.name]) for one in fields(cls))
    return tuple(sorted(found, key=lambda field: field.key))


def _field(name: str, annotation: Any) -> Field:
    found = kind_of(annotation)
    kind, optional = (found.kind, True) if isinstance(found, Optional) else (found, False)
    return Field(name, cbor.dump(name), kind, optional, not isinstance(kind, Unchecked))
