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


def refusal(error: Rejected | Unavailable) -> ErrorEnvelope:
    """The envelope of a failed message, for a batch result or for a response of its own."""
    if isinstance(error, Unavailable):
        return _envelope(Code.UNAVAILABLE, str(error), retry_after=RETRY_SEC)
    failure = error.failure
    detail: dict[str, Any] = {"stage": failure.stage.value, "detail_enum": failure.detail_enum}
    if error.stream_seq is not None:
        detail["stream_seq"] = error.stream_seq
    if error.receipt is not None:
        detail["receipt"] = error.receipt
    return _envelope(failure.code, error.message, detail, error.retry_after)


def install(app: Flask) -> None:
    app.register_error_handler(RequestRefused, _refused)
    app.register_error_handler(Rejected, _failed)
    app.register_error_handler(Unavailable, _failed)
    app.register_error_handler(Missing, _missing)
    app.register_error_handler(NotFound, _missing)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _unexpected)


def _envelope(
    code: Code, message: str, detail: dict[str, Any] | None = None, retry_after: int | None = None
) -> ErrorEnvelope:
    return ErrorEnvelope(
        code=code.value,
        message=message,
        detail=detail,
        retry_after=retry_after,
        request_id=g.request_id,
    )


def _send(envelope: ErrorEnvelope) -> ResponseReturnValue:
    response = answer(envelope, Code(envelope.code).http_status)
    if envelope.retry_after is not None:
        response.headers["Retry-After"] = str(envelope.retry_after)
    if envelope.code == Code.UNAUTHORIZED.value:
        response.headers["WWW-Authenticate"] = 'Bearer realm="veen", Signature realm="veen"'
    return response


def _refused(error: RequestRefused) -> ResponseReturnValue:
    return _send(_envelope(error.code, error.message, error.detail))


def _failed(error: Rejected | Unavailable) -> ResponseReturnValue:
    return _send(refusal(error))


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
    """Handle a bug: the traceback goes to the log, its request id to the client."""
    _log.error("request %s failed", g.request_id, exc_info=error)
    message = "internal error of the hub; see its log for this request_id"
    return _send(_envelope(Code.UNAVAILABLE, message, retry_after=RETRY_SEC))
