"""Bodies in CBOR or JSON: how one is read, and in which form the answer goes out (spec 10.3)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeVar

from flask import Response, request

from hub.api import strict_json
from hub.api.refused import Refused
from veen.errors import Code, Malformed, WrongVersion
from veen.wire import WireObject

W = TypeVar("W", bound=WireObject)

_SMALL_BODY: Final = 65_536
MAX_VALUES: Final = 16_384
"""How many values a JSON body may have, unless its route says otherwise."""


class Format(Enum):
    CBOR = "application/cbor"
    JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Body:
    """The bytes of a request, of which nothing is known yet but their size and format."""

    raw: bytes
    format: Format
    max_values: int = MAX_VALUES

    def parse(self, cls: type[W]) -> W:
        """The object in the body; Malformed when it is another."""
        if self.format is Format.CBOR:
            return cls.decode(self.raw)
        return cls.from_json(strict_json.loads(self.raw, self.max_values))

    def envelope(self, cls: type[W]) -> W:
        """The same, where a body that is no such object is a fault of the request."""
        try:
            return self.parse(cls)
        except WrongVersion as error:
            raise Refused(Code.VERSION, str(error)) from error
        except strict_json.TooManyValues as error:
            raise Refused(Code.LIMIT, str(error), {"max_allowed": self.max_values}) from error
        except Malformed as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from error


class TooLarge(Exception):
    """A body above its bound; whoever set the bound says what that means."""

    def __init__(self, size: int, bound: int) -> None:
        super().__init__(f"a body of {size} bytes or more, {bound} are allowed")
        self.size = size


def request_format() -> Format:
    if request.content_encoding not in (None, "", "identity"):
        raise Refused(Code.BAD_REQUEST, f"content-encoding {request.content_encoding} is not read")
    found = _named(request.mimetype)
    if found is None:
        due = " or ".join(one.value for one in Format)
        raise Refused(Code.BAD_REQUEST, f"content-type {request.mimetype!r}, {due} is due")
    return found


def read_body(found: Format, bound: int) -> Body:
    """The request's body. It is refused by its announced length before a byte of it is read."""
    announced = request.content_length or 0
    if announced > bound:
        raise TooLarge(announced, bound)
    raw = _read(bound + 1)
    if len(raw) > bound:
        raise TooLarge(len(raw), bound)
    return Body(raw, found)


def bounded_body(bound: int, max_values: int = MAX_VALUES) -> Body:
    try:
        return replace(read_body(request_format(), bound), max_values=max_values)
    except TooLarge as error:
        raise Refused(Code.LIMIT, str(error), {"max_allowed": bound}) from error


def small_body() -> Body:
    """The body of a request that carries a few numbers and hashes."""
    return bounded_body(_SMALL_BODY)


def no_body() -> Body:
    """What a GET has; a body of its own it must not have."""
    if request.content_length:
        raise Refused(Code.BAD_REQUEST, "a GET request has no body")
    return Body(b"", Format.JSON)


def answer(found: WireObject, status: int = 200) -> Response:
    if answer_format() is Format.CBOR:
        return Response(found.encode(), status, mimetype=Format.CBOR.value)
    return Response(json.dumps(found.to_json()), status, mimetype=Format.JSON.value)


def answer_bytes(encoded: bytes) -> Response:
    """An answer that is CBOR already."""
    return Response(encoded, mimetype=Format.CBOR.value)


def answer_format() -> Format:
    """That of the request, unless it asks for the other one."""
    own = _named(request.mimetype) or Format.JSON
    other = Format.CBOR if own is Format.JSON else Format.JSON
    chosen = request.accept_mimetypes.best_match([own.value, other.value])
    return _named(chosen) or own


def _named(mimetype: str | None) -> Format | None:
    return next((one for one in Format if one.value == mimetype), None)


def _read(most: int) -> bytes:
    parts: list[bytes] = []
    left = most
    while left and (part := request.stream.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
