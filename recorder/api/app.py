"""The Flask application of the query service and its error handlers (Query API 7, 7.6).

Every error response has ``error_code`` and ``message``.
"""

from __future__ import annotations

import logging

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge

from recorder.api import audit, health, openapi, page, query
from recorder.api.context import install_context, refuse
from recorder.service.errors import ErrorCode, Refusal
from recorder.service.requests import Waits
from recorder.settings import RecorderSettings

_log = logging.getLogger(__name__)


def install_error_handlers(app: Flask) -> None:
    app.register_error_handler(Refusal, refuse)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected_error)


def _http_error(error: HTTPException) -> Response:
    if isinstance(error, RequestEntityTooLarge):
        return refuse(
            Refusal(ErrorCode.INVALID_QUERY_DESCRIPTOR, "the descriptor is too large", status=413)
        )
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        detail = f"{request.path} is for {allowed}"
        response = refuse(Refusal(ErrorCode.QUERY_NOT_FOUND, detail, status=405))
        response.headers["Allow"] = allowed
        return response
    if error.code == ErrorCode.QUERY_NOT_FOUND.status:
        return refuse(
            Refusal(ErrorCode.QUERY_NOT_FOUND, "no resource at this path; see /openapi.json")
        )
    return refuse(Refusal(ErrorCode.INVALID_JSON, error.name, status=error.code))


def _unexpected_error(error: Exception) -> Response:
    """Handle an error that is no fault of the request; details are in the log."""
    _log.error("%s failed", request.path, exc_info=error)
    return refuse(Refusal(ErrorCode.INTERNAL_ERROR, "the service failed; see its log"))


def create_app(settings: RecorderSettings, waits: Waits | None = None) -> Flask:
    app = Flask(__name__, static_folder=None)
    install_context(app, settings, waits or Waits())
    install_error_handlers(app)
    audit.install(app)
    app.after_request(_protect)
    for number, prefix in enumerate(query.PREFIXES):
        app.register_blueprint(query.bp, url_prefix=prefix, name=f"query_{number}")
    for part in (health, openapi, page):
        app.register_blueprint(part.bp)
    return app


def _protect(response: Response) -> Response:
    """Set headers against caching and content sniffing by intermediaries."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'")
    return response
