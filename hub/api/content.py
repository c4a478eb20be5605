"""A request the hub does not serve, apart from any message in it (spec 10.6).

The arguments of a GET, each given once, as strictly as a body.

JSON read as strictly as CBOR: no doubled keys, no floats, no numbers that are none.

Bodies in CBOR or JSON: how one is read, and in which form the answer goes out (spec 10.3).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Never, TypeVar

from flask import Response, request

from veen.errors import Code, Malformed, VeenError, WrongVersion
from veen.wire.objects import WireMap, WireObject


class Refused(VeenError):
    """Carries the code that says why, and the machine-readable detail of it."""

    def __init__(self, code: Code, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


QueryT = TypeVar("QueryT", bound=WireMap)

_NUMBERS: Final = {"from_seq", "limit", "after"}
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")


def query(cls: type[QueryT]) -> QueryT:
    values: dict[str, object] = {}
    for name, given in request.args.lists():
        if len(given) != 1:
            raise Refused(Code.BAD_REQUEST, f"{name} is given twice", {"field": name})
        number = name in _NUMBERS and _NUMBER.fullmatch(given[0])
        values[name] = int(given[0]) if number else given[0]
    try:
        return cls.from_json(values)
    except Malformed as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from error


class TooManyValues(Malformed):
    """More values than a request can mean; none of them was made."""


def strict_json_loads(raw: bytes, max_values: int) -> Any:
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
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Malformed("a key stands twice in a JSON object")
    return result


def _refuse_number(text: str) -> Never:
    raise Malformed(f"{text} is not an unsigned integer")


BodyT = TypeVar("BodyT", bound=WireObject)

_SMALL_BODY: Final = 65_536
MAX_VALUES: Final = 16_384
"""How many values a JSON body may have, unless its route says otherwise."""


class ContentFormat(Enum):
    CBOR = "application/cbor"
    JSON = "application/json"


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The bytes of a request, of which nothing is known yet but their size and format."""

    raw: bytes
    format: ContentFormat
    max_values: int = MAX_VALUES

    def parse(self, cls: type[BodyT]) -> BodyT:
        """The object in the body; Malformed when it is another."""
        if self.format is ContentFormat.CBOR:
            return cls.decode(self.raw)
        return cls.from_json(strict_json_loads(self.raw, self.max_values))

    def envelope(self, cls: type[BodyT]) -> BodyT:
        """The same, where a body that is no such object is a fault of the request."""
        try:
            return self.parse(cls)
        except WrongVersion as error:
            raise Refused(Code.VERSION, str(error)) from error
        except TooManyValues as error:
            raise Refused(Code.LIMIT, str(error), {"max_allowed": self.max_values}) from error
        except Malformed as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from error


class BodyTooLarge(Exception):
    """A body above its bound; whoever set the bound says what that means."""

    def __init__(self, size: int, bound: int) -> None:
        super().__init__(f"a body of {size} bytes or more, {bound} are allowed")
        self.size = size


def request_format() -> ContentFormat:
    if request.content_encoding not in (None, "", "identity"):
        raise Refused(Code.BAD_REQUEST, f"content-encoding {request.content_encoding} is not read")
    result = _named(request.mimetype)
    if result is None:
        due = " or ".join(item.value for item in ContentFormat)
        raise Refused(Code.BAD_REQUEST, f"content-type {request.mimetype!r}, {due} is due")
    return result


def read_body(format_: ContentFormat, bound: int) -> RequestBody:
    """The request's body. It is refused by its announced length before a byte of it is read."""
    announced = request.content_length or 0
    if announced > bound:
        raise BodyTooLarge(announced, bound)
    raw = _read(bound + 1)
    if len(raw) > bound:
        raise BodyTooLarge(len(raw), bound)
    return RequestBody(raw, format_)


def bounded_body(bound: int, max_values: int = MAX_VALUES) -> RequestBody:
    try:
        return replace(read_body(request_format(), bound), max_values=max_values)
    except BodyTooLarge as error:
        raise Refused(Code.LIMIT, str(error), {"max_allowed": bound}) from error


def small_body() -> RequestBody:
    """The body of a request that carries a few numbers and hashes."""
    return bounded_body(_SMALL_BODY)


def no_body() -> RequestBody:
    """What a GET has; a body of its own it must not have."""
    if request.content_length:
        raise Refused(Code.BAD_REQUEST, "a GET request has no body")
    return RequestBody(b"", ContentFormat.JSON)


def answer(object_: WireObject, status: int = 200) -> Response:
    if answer_format() is ContentFormat.CBOR:
        return Response(object_.encode(), status, mimetype=ContentFormat.CBOR.value)
    return Response(json.dumps(object_.to_json()), status, mimetype=ContentFormat.JSON.value)


def answer_bytes(encoded: bytes) -> Response:
    """An answer that is CBOR already."""
    return Response(encoded, mimetype=ContentFormat.CBOR.value)


def answer_format() -> ContentFormat:
    """That of the request, unless it asks for the other one."""
    own = _named(request.mimetype) or ContentFormat.JSON
    other = ContentFormat.CBOR if own is ContentFormat.JSON else ContentFormat.JSON
    chosen = request.accept_mimetypes.best_match([own.value, other.value])
    return _named(chosen) or own


def _named(mimetype: str | None) -> ContentFormat | None:
    return next((item for item in ContentFormat if item.value == mimetype), None)


def _read(most: int) -> bytes:
    parts: list[bytes] = []
    left = most
    while left and (part := request.stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
