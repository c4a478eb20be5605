"""Kinds of fields of wire objects, derived from their type annotations (spec 3.1).

A kind first reads a value and its type; sizes and versions are checked once the whole object has
been read, because malformed takes precedence over a wrong size (spec 8.2). In JSON a byte string is
lowercase hex (spec 10.3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Protocol, TypeVar, Union, get_args, get_origin

from veen.errors import LATER_RELEASE, Malformed, WrongSize, WrongVersion
from veen.wire import cbor

T = TypeVar("T")
ValueT = TypeVar("ValueT")

VERSION: Final = 1
_NULL: Final = b"\xf6"
_LOWER_HEX: Final = re.compile(r"([0-9a-f]{2})*")


@dataclass(frozen=True, slots=True)
class Size:
    """Marks a byte string of exactly this many bytes."""

    exact: int


@dataclass(frozen=True, slots=True)
class Marker:
    name: str


Bytes32 = Annotated[bytes, Size(32)]
Bytes64 = Annotated[bytes, Size(64)]
Version = Annotated[int, Marker("version")]
RawItem = Annotated[bytes, Marker("raw item")]
Detail = Annotated[dict[str, Any], Marker("detail")]


class SchemaKind(Protocol):
    @property
    def is_checked(self) -> bool:
        """Whether a value of the right type can be invalid."""

    def read(self, raw: bytes, at: int, /) -> tuple[Any, int]:
        """The value at ``at`` and its end, or Malformed for another type."""

    def check(self, value: Any, /) -> None:
        """Raise WrongSize or WrongVersion for a value of the right type."""

    def plain(self, value: Any, /) -> Any:
        """The value for ``cbor.dump``, or Malformed for another type."""

    def to_json(self, value: Any, /) -> Any:
        """The JSON form of the value."""

    def from_json(self, value: Any, /) -> Any:
        """The value of a JSON form; like ``read`` it checks the type alone."""


class PerClass(dict[type, ValueT]):
    """What is built once for each class, when it is first needed."""

    def __init__(self, build: Callable[[Any], ValueT]) -> None:
        self._build = build

    def __missing__(self, cls: type) -> ValueT:
        return self.setdefault(cls, self._build(cls))


class Checked:
    """A kind whose decoded values have to be checked."""

    is_checked = True


class Unchecked:
    """A kind of which every decoded value is valid."""

    is_checked = False

    def check(self, value: Any) -> None:  # noqa: ARG002 - every value is right
        return


class Same:
    """A kind whose values are the same in JSON."""

    def to_json(self, value: Any) -> Any:
        return value


class Hex:
    """A kind of byte strings, which are hex in JSON."""

    def to_json(self, value: bytes) -> str:
        return value.hex()

    def from_json(self, value: Any) -> bytes:
        return _unhex(value)


class Uint(Same, Unchecked):
    read = staticmethod(cbor.uint)

    def plain(self, value: int) -> int:
        if type(value) is not int or not 0 <= value <= cbor.UINT_MAX:
            raise Malformed(f"expected a 64-bit unsigned integer, got {value!r}")
        return value

    from_json = plain


class VersionNumber(Same, Checked):
    read = staticmethod(cbor.uint)

    def check(self, value: int) -> None:
        if value != VERSION:
            raise WrongVersion(f"expected version {VERSION}, got {value}: {LATER_RELEASE}")

    def plain(self, value: int) -> int:
        self.check(_of_type(value, int))
        return VERSION

    def from_json(self, value: Any) -> int:
        return _PLAIN_UINT.from_json(value)


class Bool(Same, Unchecked):
    def read(self, raw: bytes, at: int) -> tuple[bool, int]:
        value, end = cbor.simple(raw, at)
        if value is None:
            raise Malformed(f"expected true or false, got null, at byte {at}")
        return value, end

    def plain(self, value: bool) -> bool:
        return _of_type(value, bool)

    from_json = plain


class Text(Same, Unchecked):
    read = staticmethod(cbor.tstr)

    def plain(self, value: str) -> str:
        if type(value) is not str:
            raise _wrong_type(value, str)
        return value  # ``cbor.dump`` refuses a lone surrogate

    def from_json(self, value: Any) -> str:
        cbor.verify_no_surrogates(_of_type(value, str))
        return str(value)


class Bytes(Hex, Unchecked):
    read = staticmethod(cbor.bstr)

    def plain(self, value: bytes) -> bytes:
        return _of_type(value, bytes)


class FixedBytes(Hex, Checked):
    read = staticmethod(cbor.bstr)

    def __init__(self, size: int) -> None:
        self._size = size
        head = cbor.dump(bytes(size))[:-size]
        self.span = (head, len(head), len(head) + size)

    def check(self, value: bytes) -> None:
        if len(value) != self._size:
            raise WrongSize(f"expected {self._size} bytes, got {len(value)}")

    def plain(self, value: bytes) -> bytes:
        if type(value) is not bytes:
            raise _wrong_type(value, bytes)
        if len(value) != self._size:
            self.check(value)
        return value


class Raw(Unchecked):
    """An item of any form: its framing is checked here, its content when it is decoded."""

    def read(self, raw: bytes, at: int) -> tuple[bytes, int]:
        if raw.startswith(_NULL, at):
            raise Malformed(f"expected an item, got null, at byte {at}")
        end = cbor.skip(raw, at)
        return raw[at:end], end

    def plain(self, value: bytes) -> cbor.Verbatim:
        cbor.finish(value, cbor.skip(_of_type(value, bytes), 0))
        return cbor.Verbatim(value)

    def to_json(self, value: bytes) -> Any:
        """The JSON form: no raw item has text, so a text stands for bytes."""
        return _hexed(cbor.decode(value))

    def from_json(self, value: Any) -> bytes:
        return cbor.encode(_unhexed(value, cbor.MAX_DEPTH))


class TextMap(Unchecked):
    """A map with arbitrary text keys: the machine-readable detail of an error (spec 10.6)."""

    def read(self, raw: bytes, at: int) -> tuple[dict[str, Any], int]:
        value, end = cbor.item(raw, at, cbor.MAX_DEPTH)
        if type(value) is not dict or not all(type(key) is str for key in value):
            raise Malformed(
                f"expected a map with text keys, got {type(value).__name__}, at byte {at}"
            )
        return value, end

    def plain(self, value: dict[str, Any]) -> cbor.Verbatim:
        if not all(type(key) is str for key in _of_type(value, dict)):
            raise Malformed("expected text keys in detail, got another type")
        return cbor.Verbatim(cbor.encode(value))

    def to_json(self, value: dict[str, Any]) -> dict[str, Any]:
        return {key: _hexed(element) for key, element in value.items()}

    def from_json(self, value: Any) -> dict[str, Any]:
        cbor.encode(_of_type(value, dict))
        return dict(value)


class Array:
    def __init__(self, element: SchemaKind) -> None:
        self._element = element
        self.is_checked = element.is_checked

    def read(self, raw: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        count, at = cbor.array(raw, at)
        values, read = [], self._element.read
        for _ in range(count):
            value, at = read(raw, at)
            values.append(value)
        return tuple(values), at

    def check(self, value: tuple[Any, ...]) -> None:
        for element in value:
            self._element.check(element)

    def plain(self, value: tuple[Any, ...]) -> list[Any]:
        return [self._element.plain(element) for element in _of_type(value, tuple)]

    def to_json(self, value: tuple[Any, ...]) -> list[Any]:
        return [self._element.to_json(element) for element in value]

    def from_json(self, value: Any) -> tuple[Any, ...]:
        return tuple(self._element.from_json(element) for element in _of_type(value, list))


@dataclass(frozen=True, slots=True)
class Optional:
    """A field that may be absent: null in an array, left out of a map."""

    kind: SchemaKind


_PLAIN_UINT: Final = Uint()
_PLAIN_KINDS: Final[dict[Any, SchemaKind]] = {
    int: _PLAIN_UINT,
    bytes: Bytes(),
    str: Text(),
    bool: Bool(),
}
_MARKED_KINDS: Final[dict[Any, SchemaKind]] = {
    "version": VersionNumber(),
    "raw item": Raw(),
    "detail": TextMap(),
}


def kind_of(annotation: Any) -> SchemaKind | Optional:
    """The kind of a type annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        (present,) = (argument for argument in arguments if argument is not NoneType)
        return Optional(_present(present))
    return _present(annotation)


def _present(annotation: Any) -> SchemaKind:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        mark = arguments[1]
        return FixedBytes(mark.exact) if isinstance(mark, Size) else _MARKED_KINDS[mark.name]
    if origin is tuple:
        return Array(_present(arguments[0]))
    if annotation in _PLAIN_KINDS:
        return _PLAIN_KINDS[annotation]
    kind: SchemaKind = annotation.as_kind()
    return kind


def _of_type(value: Any, expected: type[T]) -> T:
    if type(value) is not expected:
        raise _wrong_type(value, expected)
    return value


def _wrong_type(value: object, expected: type) -> Malformed:
    return Malformed(f"expected {expected.__name__}, got {type(value).__name__}")


def _unhex(value: Any) -> bytes:
    if type(value) is not str or _LOWER_HEX.fullmatch(value) is None:
        raise Malformed(f"expected bytes in lowercase hex, got {value!r:.80}")
    return bytes.fromhex(value)


def _hexed(value: Any) -> Any:
    if type(value) is bytes:
        return value.hex()
    return [_hexed(element) for element in value] if type(value) is list else value


def _unhexed(value: Any, depth: int) -> Any:
    if type(value) is str:
        return _unhex(value)
    if type(value) is not list:
        return value
    if depth == 0:
        raise Malformed("nesting too deep")
    return [_unhexed(element, depth - 1) for element in value]
