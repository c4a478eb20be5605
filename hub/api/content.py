"""Request and response bodies in CBOR or JSON, read with the same strictness (spec 10.3, 10.6).

A JSON body or query has no duplicate keys, no floats and a bounded number of values.
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

QueryT = TypeVar("QueryT", bound=WireMap)
_NUMBERS: Final = {"from_seq", "limit", "after"}
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,19}")
BodyT = TypeVar("BodyT", bound=WireObject)
SMALL_BODY: Final = 65_536
MAX_VALUES: Final = 16_384
"""The number of values in a JSON body, unless a route has its own limit."""


class RequestRefused(VeenError):
    """A request that the hub does not serve, with its error code and machine-readable detail."""

    def __init__(self, code: Code, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail


def query(cls: type[QueryT]) -> QueryT:
    """The query string of a GET as an object; a parameter given twice is refused."""
    values: dict[str, object] = {}
    for name, given in request.args.lists():
        if len(given) != 1:
            raise RequestRefused(
                Code.BAD_REQUEST, f"{name} is given more than once", {"field": name}
            )
        number = name in _NUMBERS and _NUMBER.fullmatch(given[0])
        values[name] = int(given[0]) if number else given[0]
    try:
        return cls.from_json(values)
    except Malformed as error:
        raise RequestRefused(Code.BAD_REQUEST, str(error)) from error


class TooManyValues(Malformed):
    """A JSON text with more values than allowed; none of them was created."""


def strict_json_loads(raw: bytes, max_values: int) -> Any:
    """The value of a JSON text of at most ``max_values`` values.

    A value of two bytes takes up to a hundred in memory, so values are counted before parsing:
    each but the first follows a comma, a bracket or a brace. Such characters inside strings
    are counted too.
    """
    count = raw.count(b",") + raw.count(b"[") + raw.count(b"{")
    if count > max_values:
        raise TooManyValues(f"JSON: expected at most {max_values} values, got at least {count}")
    try:
        return json.loads(
            raw,
            object_pairs_hook=_object,
            parse_float=_reject_number,
            parse_constant=_reject_number,
        )
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    object_ = dict(pairs)
    if len(object_) != len(pairs):
        raise Malformed("duplicate key in a JSON object")
    return object_


def _reject_number(text: str) -> Never:
    raise Malformed(f"expected an unsigned integer, got {text}")


class ContentFormat(Enum):
    CBOR = "application/cbor"
    JSON = "application/json"


_FORMATS: Final[dict[str | None, ContentFormat]] = {known.value: known for known in ContentFormat}


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The unparsed bytes of a request within the size limit, and their format."""

    raw: bytes
    format: ContentFormat
    max_values: int = MAX_VALUES

    def parse(self, cls: type[BodyT]) -> BodyT:
        """The body as an object of ``cls``, or Malformed."""
        if self.format is ContentFormat.CBOR:
            return cls.decode(self.raw)
        return cls.from_json(strict_json_loads(self.raw, self.max_values))

    def envelope(self, cls: type[BodyT]) -> BodyT:
        """The body as an object of ``cls``, or RequestRefused with the code of the fault."""
        try:
            return self.parse(cls)
        except WrongVersion as error:
            raise RequestRefused(Code.VERSION, str(error)) from error
        except TooManyValues as error:
            raise RequestRefused(
                Code.LIMIT, str(error), {"max_allowed": self.max_values}
            ) from error
        except Malformed as error:
            raise RequestRefused(Code.BAD_REQUEST, str(error)) from error


class BodyTooLarge(Exception):
    """A body above its size limit; the caller chooses the error code."""

    def __init__(self, size: int, bound: int) -> None:
        super().__init__(f"body too large: expected at most {bound} bytes, got at least {size}")
        self.size = size


def request_format() -> ContentFormat:
    if request.content_encoding not in (None, "", "identity"):
        raise RequestRefused(
            Code.BAD_REQUEST, f"content-encoding {request.content_encoding} is not supported"
        )
    format_ = _FORMATS.get(request.mimetype)
    if format_ is None:
        known_types = " or ".join(known.value for known in ContentFormat)
        raise RequestRefused(
            Code.BAD_REQUEST, f"content-type: expected {known_types}, got {request.mimetype!r}"
        )
    return format_


def read_body(format_: ContentFormat, bound: int) -> RequestBody:
    """The request's body. A Content-Length above ``bound`` is refused before reading."""
    announced = request.content_length or 0
    if announced > bound:
        raise BodyTooLarge(announced, bound)
    parts: list[bytes] = []
    left = bound + 1
    while left and (part := request.stream.read(left)):
        parts.append(part)
        left -= len(part)
    if not left:
        raise BodyTooLarge(bound + 1, bound)
    return RequestBody(b"".join(parts), format_)


def bounded_body(bound: int, max_values: int = MAX_VALUES) -> RequestBody:
    try:
        return replace(read_body(request_format(), bound), max_values=max_values)
    except BodyTooLarge as error:
        raise RequestRefused(Code.LIMIT, str(error), {"max_allowed": bound}) from error


def small_body() -> RequestBody:
    """The body of a request that carries a few numbers and hashes."""
    return bounded_body(SMALL_BODY)


def no_body() -> RequestBody:
    """The empty body of a GET; any other is refused."""
    if request.content_length:
        raise RequestRefused(Code.BAD_REQUEST, "expected no body in a GET request, got one")
    return RequestBody(b"", ContentFormat.JSON)


def answer(object_: WireObject, status: int = 200) -> Response:
    if answer_format() is ContentFormat.CBOR:
        return Response(object_.encode(), status, mimetype=ContentFormat.CBOR.value)
    return Response(json.dumps(object_.to_json()), status, mimetype=ContentFormat.JSON.value)


def answer_format() -> ContentFormat:
    """The format of the response: that of the request, unless Accept names the other."""
    own = _FORMATS.get(request.mimetype) or ContentFormat.JSON
    other = ContentFormat.CBOR if own is ContentFormat.JSON else ContentFormat.JSON
    chosen = request.accept_mimetypes.best_match([own.value, other.value])
    return _FORMATS.get(chosen) or own
