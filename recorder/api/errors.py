"""How the service says no over HTTP: always error_code and message (Query API 7.6)."""

from __future__ import annotations

import logging

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge

from recorder.api.answer import refuse
from recorder.service.refusal import ErrorCode, Refusal

_log = logging.getLogger(__name__)


def install(app: Flask) -> None:
    app.register_error_handler(Refusal, refuse)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _unforeseen)


def _http(error: HTTPException) -> Response:
    if isinstance(error, RequestEntityTooLarge):
        return refuse(
            Refusal(ErrorCode.INVALID_QUERY_DESCRIPTOR, "the descriptor is too large", status=413)
        )
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        told = f"{request.path} is for {allowed}"
        refused = refuse(Refusal(ErrorCode.QUERY_NOT_FOUND, told, status=405))
        refused.headers["Allow"] = allowed
        return refused
    if error.code == ErrorCode.QUERY_NOT_FOUND.status:
        return refuse(Refusal(ErrorCode.QUERY_NOT_FOUND, "nothing is at this path"))
    return refuse(Refusal(ErrorCode.INVALID_JSON, error.name, status=error.code))


def _unforeseen(error: Exception) -> Response:
    """No fault of the request: the log says what it was."""
    _log.error("%s failed", request.path, exc_info=error)
    return refuse(Refusal(ErrorCode.INTERNAL_ERROR, "the service failed; its log tells more"))
