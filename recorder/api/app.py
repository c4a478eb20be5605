"""The query service over HTTP, made by ``create_app`` for one recorder (Query API 7)."""

from __future__ import annotations

from flask import Flask, Response

from recorder.api import attempts, edge, errors, health, openapi, page, query
from recorder.service.submission import Waits
from recorder.settings import Settings


def create_app(settings: Settings, waits: Waits | None = None) -> Flask:
    app = Flask(__name__, static_folder=None)
    edge.install(app, settings, waits or Waits())
    errors.install(app)
    attempts.install(app)
    app.after_request(_protect)
    for number, prefix in enumerate(query.PREFIXES):
        app.register_blueprint(query.bp, url_prefix=prefix, name=f"query_{number}")
    for part in (health, openapi, page):
        app.register_blueprint(part.bp)
    return app


def _protect(response: Response) -> Response:
    """Nothing of a result is kept by what lies between, or taken for something else."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'")
    return response
