"""Bodies of messages: CBOR maps with the names of their fields as keys (spec 4.7).

A subclass is a frozen dataclass that repeats the table of its schema. Keys stand in the order of
their encodings, unknown and doubled ones are refused, and an optional field is left out or null.

Integers without bound and of either sign, which the CBOR of the protocol does not have.

They are byte strings: two's complement, big-endian, as short as can be; zero is one zero byte.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple, Self, get_type_hints

from veen.errors import Malformed
from veen.system.process_pool import Portable
from veen.wire import cbor
from veen.wire.schema import Optional, Same, SchemaKind, Unchecked, kind_of

_NULL = b"\xf6"


class AnyItem(bytes):
    """One item of an application's own: its framing is checked and nothing else is read."""

    __slots__ = ()

    @classmethod
    def as_kind(cls) -> SchemaKind:
        return _Framed()


class WholeItem(AnyItem):
    """One whose framing was seen already, by whoever read or made it."""

    __slots__ = ()


class EventBody(Portable):
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
        result = cls(**values)
        result.check()
        return result

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


class BodyField(NamedTuple):
    name: str
    key: bytes
    kind: SchemaKind
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


_LAYOUTS: dict[type[EventBody], tuple[BodyField, ...]] = {}


def _layout(cls: type[EventBody]) -> tuple[BodyField, ...]:
    try:
        return _LAYOUTS[cls]
    except KeyError:
        return _LAYOUTS.setdefault(cls, _lay_out(cls))


def _lay_out(cls: Any) -> tuple[BodyField, ...]:
    hints = get_type_hints(cls, include_extras=True)
    result = (_field(field.name, hints[field.name]) for field in fields(cls))
    return tuple(sorted(result, key=lambda field: field.key))


def _field(name: str, annotation: Any) -> BodyField:
    result = kind_of(annotation)
    kind, optional = (result.kind, True) if isinstance(result, Optional) else (result, False)
    return BodyField(name, cbor.dump(name), kind, optional, not isinstance(kind, Unchecked))


class Integer(int):
    """The annotation of a field that holds such an integer."""

    @classmethod
    def as_kind(cls) -> SchemaKind:
        return _IntegerKind()


def to_bytes(value: int) -> bytes:
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


class _IntegerKind(Same, Unchecked):
    def read(self, raw: bytes, at: int) -> tuple[Integer, int]:
        result, end = cbor.bstr(raw, at)
        value = Integer.from_bytes(result, "big", signed=True)
        if to_bytes(value) != result:
            raise Malformed(f"an integer longer than need be at byte {at}")
        return value, end

    def plain(self, value: Integer) -> bytes:
        return to_bytes(value)

    def from_json(self, value: Any) -> Integer:
        if type(value) is not int:
            raise Malformed(f"{value!r} is not an integer")
        return Integer(value)
