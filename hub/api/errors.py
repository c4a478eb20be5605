"""Errors over HTTP: the error envelope and its status (spec 8.2, 10.6)."""

from __future__ import annotations

import logging
import re
from typing import Any, Final

from flask import Flask, g, request
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge

from hub.api.content import RequestRefused, answer
from hub.sequencer.committer import NotFound, Unavailable
from hub.storage.reader import Missing
from veen.errors import Code, Rejected
from veen.wire.api import ErrorEnvelope

RETRY_SEC: Final = 1
_OTHER_VERSION: Final = re.compile(r"/v(?!1(/|$))[0-9]+(/|$)")
_log = logging.getLogger(__name__)


def refusal(error: Rejected | Unavailable, request_id: str) -> ErrorEnvelope:
    """The envelope of a failed message, for a batch result or for a response of its own."""
    if isinstance(error, Unavailable):
        return envelope(Code.UNAVAILABLE, str(error), retry_after=RETRY_SEC, request_id=request_id)
    failure = error.failure
    detail: dict[str, Any] = {"stage": failure.stage.value, "detail_enum": failure.detail_enum}
    if error.stream_seq is not None:
        detail["stream_seq"] = error.stream_seq
    if error.receipt is not None:
        detail["receipt"] = error.receipt
    return envelope(failure.code, error.message, detail, error.retry_after, request_id=request_id)


def install(app: Flask) -> None:
    app.register_error_handler(RequestRefused, _refused)
    app.register_error_handler(Rejected, _failed)
    app.register_error_handler(Unavailable, _failed)
    app.register_error_handler(Missing, _missing)
    app.register_error_handler(NotFound, _missing)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _unexpected)


def envelope(
    code: Code,
    message: str,
    detail: dict[str, Any] | None = None,
    retry_after: int | None = None,
    *,
    request_id: str,
) -> ErrorEnvelope:
    return ErrorEnvelope(
        code=code.value,
        message=message,
        detail=detail,
        retry_after=retry_after,
        request_id=request_id,
    )


def _envelope(
    code: Code, message: str, detail: dict[str, Any] | None = None, retry_after: int | None = None
) -> ErrorEnvelope:
    return envelope(code, message, detail, retry_after, request_id=g.request_id)


def _send(error: ErrorEnvelope) -> ResponseReturnValue:
    response = answer(error, Code(error.code).http_status)
    response.headers.extend(error_headers(error))
    return response


def error_headers(error: ErrorEnvelope) -> list[tuple[str, str]]:
    """The headers of an error, besides those of every response."""
    headers = []
    if error.retry_after is not None:
        headers.append(("Retry-After", str(error.retry_after)))
    if error.code == Code.UNAUTHORIZED.value:
        headers.append(("WWW-Authenticate", 'Bearer realm="veen", Signature realm="veen"'))
    return headers


def _refused(error: RequestRefused) -> ResponseReturnValue:
    return _send(_envelope(error.code, error.message, error.detail))


def _failed(error: Rejected | Unavailable) -> ResponseReturnValue:
    return _send(refusal(error, g.request_id))


def _missing(error: Missing | NotFound) -> ResponseReturnValue:
    return _send(_envelope(Code.NOT_FOUND, str(error)))


def _http(error: HTTPException) -> ResponseReturnValue:
    if _OTHER_VERSION.match(request.path):
        return _send(_envelope(Code.VERSION, "this hub speaks /v1"))
    if isinstance(error, RequestEntityTooLarge):
        return _send(_envelope(Code.LIMIT, "the request is too large"))
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return _send(_envelope(Code.BAD_REQUEST, f"{request.path} is for {allowed}"))
    if error.code == Code.NOT_FOUND.http_status:
        return _send(_envelope(Code.NOT_FOUND, f"nothing is at {request.path}"))
    if error.code is not None and error.code < 400:
        return error.get_response()
    return _send(_envelope(Code.BAD_REQUEST, error.name))


def _unexpected(error: Exception) -> ResponseReturnValue:
    return _send(internal_error(error, g.request_id))


def internal_error(error: Exception, request_id: str) -> ErrorEnvelope:
    """Handle a bug: the traceback goes to the log, its request id to the client."""
    _log.error("request %s failed", request_id, exc_info=error)
    message = "internal error of the hub; see its log for this request_id"
    return envelope(Code.UNAVAILABLE, message, retry_after=RETRY_SEC, request_id=request_id)
