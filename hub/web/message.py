"""A request and a response as the ASGI application sees them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hub.api.content import ContentFormat
from hub.api.errors import error_headers
from veen.errors import Code
from veen.system.asgi_server import CLOSE
from veen.wire.api import ErrorEnvelope

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_ANY_ANSWER: Final = (b"", b"*/*", ContentFormat.CBOR.value.encode())
_CBOR: Final = ContentFormat.CBOR.value.encode()


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The parts of a request that decide how it is read; ``announced`` is its Content-Length."""

    method: str
    path: str
    content_type: bytes
    announced: int | None
    is_plain: bool

    @classmethod
    def of(cls, scope: Message) -> RequestHead:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        content_type = headers.get(b"content-type", b"").lower()
        length = headers.get(b"content-length")
        is_plain = (
            content_type == _CBOR
            and length is not None
            and headers.get(b"accept", b"") in _ANY_ANSWER
            and b"content-encoding" not in headers
            and b"transfer-encoding" not in headers
            and not scope["query_string"]
        )
        announced = None if length is None else int(length)  # the parser accepts digits alone
        return cls(scope["method"], scope["path"], content_type, announced, is_plain)

    @property
    def format(self) -> ContentFormat:
        """CBOR, or JSON where the body is none or something else."""
        is_cbor = self.content_type.partition(b";")[0].strip() == _CBOR
        return ContentFormat.CBOR if is_cbor else ContentFormat.JSON


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @classmethod
    def cbor(cls, body: bytes, request_id: str) -> Reply:
        return cls(200, _headers(ContentFormat.CBOR, body, request_id), body)

    @classmethod
    def refusal(cls, error: ErrorEnvelope, format_: ContentFormat, request_id: str) -> Reply:
        body = (
            error.encode()
            if format_ is ContentFormat.CBOR
            else json.dumps(error.to_json()).encode()
        )
        headers = _headers(format_, body, request_id)
        more = [(name.encode(), value.encode()) for name, value in error_headers(error)]
        return cls(Code(error.code).http_status, [*headers[:-1], *more, headers[-1]], body)

    def closing(self) -> Reply:
        """The response, after which the connection is closed."""
        return replace(self, headers=[*self.headers, CLOSE])

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


def _headers(format_: ContentFormat, body: bytes, request_id: str) -> list[tuple[bytes, bytes]]:
    return [
        (b"Content-Type", format_.value.encode()),
        (b"Content-Length", b"%d" % len(body)),
        (b"X-Request-Id", request_id.encode()),
    ]
