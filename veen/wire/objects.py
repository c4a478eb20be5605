"""Wire objects: frozen dataclasses with the fields of the specification's tables (spec 3.1).

A subclass of WireArray is a CBOR array of its fields in order; an absent field is null, and absent
fields at the end are cut off. A subclass of WireMap is a CBOR map with the keys 1, 2, ... in the
order of its fields; an absent field is left out. ``decode`` gives a valid object or raises
Malformed; ``encode`` gives the only bytes that decode to the same object.

A SignedArray of the usual shape is decoded by a single pattern, which implies that it is
well-formed and has the right sizes and version. Any other is decoded field by field, which is
slower and finds the fault.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import zip_longest
from typing import Any, Final, NamedTuple, Self, get_type_hints

from veen.digest import ht
from veen.errors import Malformed
from veen.system.process_pool import Portable
from veen.wire import cbor
from veen.wire.schema import (
    VERSION,
    Bytes,
    Checked,
    FixedBytes,
    Optional,
    PerClass,
    SchemaKind,
    Uint,
    VersionNumber,
    kind_of,
)

Put = Callable[[Any, Any], None]
"""Sets a field of an object."""

_UINT: Final = (
    rb"([\x00-\x17]|\x18[\x18-\xff]|\x19(?!\x00).{2}|\x1a(?!\x00{2}).{4}|\x1b(?!\x00{4}).{8})"
)
_SIG_HEAD: Final = b"\x58\x40"
_SIG_SIZE: Final = 66  # a bstr64 with its head
_NULL = b"\xf6"


class ShapePart(NamedTuple):
    kind: SchemaKind
    optional: bool
    put: Put


class WireShape(NamedTuple):
    """The usual shape of a signed array.

    ``pattern`` has the fields before the ``body``, or before the signature if there is none.
    """

    pattern: re.Pattern[bytes]
    puts: tuple[tuple[Put, bool], ...]
    body: Put | None
    sig: Put

    def fill(self, object_: object, raw: bytes) -> bool:
        """Fill an object from its bytes; False, with some fields set, if the shape differs."""
        match = self.pattern.match(raw)
        if match is None:
            return False
        for (put, is_uint), value in zip(self.puts, match.groups(), strict=True):
            put(object_, int.from_bytes(value[1:] or value, "big") if is_uint else value)
        end = match.end()
        if self.body is not None:
            body, end = cbor.bstr(raw, end)
            self.body(object_, body)
        self.sig(object_, raw[end + 2 :])
        return len(raw) == end + _SIG_SIZE and raw.startswith(_SIG_HEAD, end)


def shape_of(parts: Sequence[ShapePart]) -> WireShape:
    """The shape of an array of these fields, the last of which is the signature."""
    *before, sig = parts
    body = before.pop() if isinstance(before[-1].kind, Bytes) else None
    return WireShape(
        pattern=re.compile(
            re.escape(cbor.array_head(len(parts))) + b"".join(map(_pattern, before)), re.DOTALL
        ),
        puts=tuple((part.put, not isinstance(part.kind, FixedBytes)) for part in before),
        body=body.put if body else None,
        sig=sig.put,
    )


def _pattern(part: ShapePart) -> bytes:
    match part.kind:
        case FixedBytes(span=(head, start, end)):
            value = re.escape(head) + b"(.{%d})" % (end - start)
            return b"(?:%b|\xf6)" % value if part.optional else value
        case VersionNumber():
            return b"(%c)" % VERSION
        case Uint():
            return _UINT
    raise TypeError(f"{type(part.kind).__name__} is not allowed in a signed array")


class WireField(NamedTuple):
    name: str
    key: int
    encoded_key: bytes
    kind: SchemaKind
    read: Callable[[bytes, int], tuple[Any, int]]
    put: Callable[[WireObject, Any], None]
    optional: bool
    fixed: tuple[bytes, int, int] | None
    """Head, start and end of a byte string of fixed size, for the fast path."""


class WireLayout(NamedTuple):
    """The fields of one class, laid out for reading."""

    fields: tuple[WireField, ...]
    shortest: int
    checks: tuple[tuple[str, Callable[[Any], None]], ...]


class WireObject(Portable):
    """The base class of arrays and maps; an object keeps the bytes it was decoded from."""

    __slots__ = ("_encoded",)
    _encoded: bytes

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        object_, end = cls.read(raw, 0)
        if end != len(raw):
            cbor.finish(raw, end)
        object_.check()
        object.__setattr__(object_, "_encoded", raw)
        return object_

    def encode(self) -> bytes:
        try:
            return self._encoded
        except AttributeError:
            object.__setattr__(self, "_encoded", cbor.dump(self.plain()))
            return self._encoded

    def rule(self) -> None:
        """Raise Malformed if the fields, each valid by itself, contradict each other."""

    def check(self) -> None:
        for name, check in _LAYOUTS[type(self)].checks:
            value = getattr(self, name)
            if value is not None:
                check(value)
        self.rule()

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The object of a JSON form, as strict as ``decode``."""
        object_ = cls.read_json(value)
        object_.check()
        return object_

    @classmethod
    @abstractmethod
    def read_json(cls, value: Any) -> Self:
        """The object of a JSON form, not checked yet."""

    @abstractmethod
    def to_json(self) -> Any:
        """The object as JSON: an array or an object with the names of the fields."""

    @classmethod
    @abstractmethod
    def read(cls, raw: bytes, at: int) -> tuple[Self, int]:
        """The object at ``at``, not checked yet, and its end."""

    @abstractmethod
    def plain(self) -> Any:
        """The checked object as a value for ``cbor.dump``."""

    @classmethod
    def as_kind(cls) -> SchemaKind:
        return _Nested(cls)


class WireArray(WireObject):
    __slots__ = ()

    @classmethod
    def read(cls, raw: bytes, at: int) -> tuple[Self, int]:
        layout = _LAYOUTS[cls]
        count, at = cbor.array(raw, at)
        if not layout.shortest <= count <= len(layout.fields):
            raise Malformed(
                f"{cls.__name__}: expected {layout.shortest} to {len(layout.fields)} elements, "
                f"got {count}"
            )
        object_ = cls.__new__(cls)
        for _, key, _, _, read, put, optional, fixed in layout.fields:
            if fixed is not None and raw.startswith(fixed[0], at):
                # A truncated field ends beyond the input, which ``finish`` refuses.
                put(object_, raw[at + fixed[1] : at + fixed[2]])
                at += fixed[2]
            elif optional and key > count:
                put(object_, None)
            elif optional and key < layout.shortest and raw.startswith(_NULL, at):
                put(object_, None)
                at += 1
            else:
                value, at = read(raw, at)
                put(object_, value)
        return object_, at

    def plain(self) -> list[Any]:
        layout = _LAYOUTS[type(self)]
        values = [_plain(field, getattr(self, field.name)) for field in layout.fields]
        self.rule()
        return _cut_absent(values, layout)

    @classmethod
    def read_json(cls, value: Any) -> Self:
        layout = _LAYOUTS[cls]
        if type(value) is not list or not layout.shortest <= len(value) <= len(layout.fields):
            raise Malformed(
                f"{cls.__name__}: expected a JSON array of {layout.shortest} to "
                f"{len(layout.fields)} elements"
            )
        object_ = cls.__new__(cls)
        for field, element in zip_longest(layout.fields, value):
            absent = element is None and field.optional
            if absent and layout.shortest < field.key <= len(value):
                raise Malformed(f"{cls.__name__}: expected a value of {field.name}, got null")
            field.put(object_, None if absent else field.kind.from_json(element))
        return object_

    def to_json(self) -> list[Any]:
        layout = _LAYOUTS[type(self)]
        values = [_json(field, getattr(self, field.name)) for field in layout.fields]
        return _cut_absent(values, layout)


class SignedArray(WireArray):
    """An array whose last element is a signature over all the others."""

    __slots__ = ()

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        object_ = cls.__new__(cls)
        if not _SHAPES[cls].fill(object_, raw):
            return super().decode(raw)
        object_.rule()
        object.__setattr__(object_, "_encoded", raw)
        return object_

    def _signing_digest(self) -> bytes:
        """The digest that the signature covers: that of the array without it."""
        raw = self.encode()
        return ht("veen/sig", bytes([raw[0] - 1]), raw[1:-_SIG_SIZE])


class WireMap(WireObject):
    __slots__ = ()

    @classmethod
    def read(cls, raw: bytes, at: int) -> tuple[Self, int]:
        count, at = cbor.mapping(raw, at)
        object_ = cls.__new__(cls)
        for field in _LAYOUTS[cls].fields:
            if count and raw.startswith(field.encoded_key, at):
                value, at = field.read(raw, at + len(field.encoded_key))
                field.put(object_, value)
                count -= 1
            elif field.optional:
                field.put(object_, None)
            else:
                raise _lacks(cls, field)
        if count:
            key, at = cbor.uint(raw, at)
            raise Malformed(f"{cls.__name__} has an unknown, duplicate or misplaced key {key}")
        return object_, at

    def plain(self) -> dict[int, Any]:
        pairs = ((field, getattr(self, field.name)) for field in _LAYOUTS[type(self)].fields)
        values = {
            field.key: _plain(field, value)
            for field, value in pairs
            if value is not None or not field.optional
        }
        self.rule()
        return values

    @classmethod
    def read_json(cls, value: Any) -> Self:
        layout = _LAYOUTS[cls]
        if type(value) is not dict:
            raise Malformed(f"{cls.__name__}: expected a JSON object, got {type(value).__name__}")
        unknown = sorted(value.keys() - {field.name for field in layout.fields})
        if unknown:
            raise Malformed(f"{cls.__name__} has no field {unknown[0]!r}")
        object_ = cls.__new__(cls)
        for field in layout.fields:
            if field.name in value:
                field.put(object_, field.kind.from_json(value[field.name]))
            elif field.optional:
                field.put(object_, None)
            else:
                raise _lacks(cls, field)
        return object_

    def to_json(self) -> dict[str, Any]:
        pairs = ((field, getattr(self, field.name)) for field in _LAYOUTS[type(self)].fields)
        return {field.name: _json(field, value) for field, value in pairs if value is not None}


class _Nested(Checked):
    """A wire object inside another one."""

    def __init__(self, cls: type[WireObject]) -> None:
        self._cls = cls
        self.read, self.check = cls.read, cls.check
        self.to_json, self.from_json = cls.to_json, cls.read_json

    def plain(self, value: WireObject) -> Any:
        if type(value) is not self._cls:
            raise Malformed(f"expected {self._cls.__name__}, got {type(value).__name__}")
        return value.plain()


def _build_shape(cls: Any) -> WireShape:
    fields_ = _LAYOUTS[cls].fields
    return shape_of([ShapePart(field.kind, field.optional, field.put) for field in fields_])


def _build_layout(cls: Any) -> WireLayout:
    hints = get_type_hints(cls, include_extras=True)
    wire_fields = tuple(
        _field(cls, f.name, key, hints[f.name]) for key, f in enumerate(fields(cls), 1)
    )
    return WireLayout(
        fields=wire_fields,
        shortest=max((field.key for field in wire_fields if not field.optional), default=0),
        checks=_checks(wire_fields),
    )


def _checks(wire_fields: tuple[WireField, ...]) -> tuple[tuple[str, Callable[[Any], None]], ...]:
    """Sizes in the order of the fields, then the version (spec 8.2)."""
    checked = [field for field in wire_fields if field.kind.is_checked]
    checked.sort(key=lambda field: isinstance(field.kind, VersionNumber))
    return tuple((field.name, field.kind.check) for field in checked)


def _field(cls: Any, name: str, key: int, annotation: Any) -> WireField:
    annotated = kind_of(annotation)
    optional = isinstance(annotated, Optional)
    kind = annotated.kind if isinstance(annotated, Optional) else annotated
    # The setter of the slot, which also works for a frozen class.
    put = cls.__dict__[name].__set__
    fixed = kind.span if isinstance(kind, FixedBytes) else None
    return WireField(name, key, cbor.dump(key), kind, kind.read, put, optional, fixed)


def _lacks(cls: type, field: WireField) -> Malformed:
    return Malformed(f"{cls.__name__} lacks key {field.key} ({field.name})")


def _plain(field: WireField, value: Any) -> Any:
    return None if value is None and field.optional else field.kind.plain(value)


def _json(field: WireField, value: Any) -> Any:
    return None if value is None else field.kind.to_json(value)


def _cut_absent(values: list[Any], layout: WireLayout) -> list[Any]:
    while len(values) > layout.shortest and values[-1] is None:
        values.pop()
    return values


_LAYOUTS: Final = PerClass(_build_layout)
_SHAPES: Final = PerClass(_build_shape)
