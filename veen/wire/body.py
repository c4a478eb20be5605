"""Bodies of messages: CBOR maps with field names as keys (spec 4.7).

A subclass is a frozen dataclass with the fields of its schema. Keys are in the order of their
encodings; unknown and duplicate keys are refused, and an optional field is left out or null.
``Integer`` is an unbounded signed integer, which the protocol's CBOR does not have: a byte string
in two's complement, big-endian and as short as possible.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final, NamedTuple, Self, get_type_hints

from veen.errors import Malformed
from veen.system.process_pool import Portable
from veen.wire import cbor
from veen.wire.schema import Optional, PerClass, Same, SchemaKind, Unchecked, kind_of

_NULL = b"\xf6"


class AnyItem(bytes):
    """An item of an application, of which only the framing is checked."""

    __slots__ = ()

    @classmethod
    def as_kind(cls) -> SchemaKind:
        return _Framed()


class WholeItem(AnyItem):
    """An item whose framing was already checked."""

    __slots__ = ()


class EventBody(Portable):
    """The base class of bodies."""

    __slots__ = ()

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        count, at = cbor.mapping(raw, 0)
        values: dict[str, Any] = {}
        for field in _LAYOUTS[cls]:
            if raw.startswith(field.key, at):
                values[field.name], at = field.read(raw, at + len(field.key))
            elif not field.optional:
                raise Malformed(f"{cls.__name__} lacks {field.name} at byte {at}")
        if len(values) != count:
            raise Malformed(f"{cls.__name__} has an unknown, duplicate or misplaced key")
        cbor.finish(raw, at)
        body = cls(**values)
        body.check()
        return body

    def encode(self) -> bytes:
        values = {
            field.name: field.kind.plain(value)
            for field in _LAYOUTS[type(self)]
            if (value := getattr(self, field.name)) is not None
        }
        self.rule()
        return cbor.dump(values)

    def check(self) -> None:
        for field in _LAYOUTS[type(self)]:
            if field.kind.is_checked and (value := getattr(self, field.name)) is not None:
                field.kind.check(value)
        self.rule()

    def rule(self) -> None:
        """Raise Malformed if the fields, each valid by itself, contradict each other."""


class BodyField(NamedTuple):
    name: str
    key: bytes
    kind: SchemaKind
    optional: bool

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


def _build_layout(cls: Any) -> tuple[BodyField, ...]:
    hints = get_type_hints(cls, include_extras=True)
    layout = (_field(field.name, hints[field.name]) for field in fields(cls))
    return tuple(sorted(layout, key=lambda field: field.key))


def _field(name: str, annotation: Any) -> BodyField:
    annotated = kind_of(annotation)
    kind, optional = (
        (annotated.kind, True) if isinstance(annotated, Optional) else (annotated, False)
    )
    return BodyField(name, cbor.dump(name), kind, optional)


class Integer(int):
    """The annotation of a field with an unbounded signed integer."""

    @classmethod
    def as_kind(cls) -> SchemaKind:
        return _IntegerKind()


def to_bytes(value: int) -> bytes:
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


class _IntegerKind(Same, Unchecked):
    def read(self, raw: bytes, at: int) -> tuple[Integer, int]:
        encoded, end = cbor.bstr(raw, at)
        value = Integer.from_bytes(encoded, "big", signed=True)
        if to_bytes(value) != encoded:
            raise Malformed(f"expected a shortest-form integer, got an overlong one, at byte {at}")
        return value, end

    def plain(self, value: Integer) -> bytes:
        return to_bytes(value)

    def from_json(self, value: Any) -> Integer:
        if type(value) is not int:
            raise Malformed(f"expected an integer, got {value!r}")
        return Integer(value)


_LAYOUTS: Final = PerClass(_build_layout)
