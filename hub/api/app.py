"""The HTTP edge of a hub, made by ``create_app`` for one data directory (spec 10)."""

from __future__ import annotations

import secrets

from flask import Flask, Response, g

from hub.api import admin, errors, health, openapi, read, submit
from hub.api.context import install_context
from hub.settings import HubSettings
from hub.storage.datadir import DataDir


def create_app(settings: HubSettings, datadir: DataDir) -> Flask:
    """The sequencer must have created the directory's identity before this is called."""
    app = Flask(__name__, static_folder=None)
    install_context(app, settings, datadir)
    errors.install(app)
    app.before_request(_name_request)
    app.after_request(_send_name)
    for part in (submit, read, admin, health, openapi):
        app.register_blueprint(part.bp)
    return app


def _name_request() -> None:
    g.request_id = secrets.token_hex(8)


def _send_name(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.request_id
    return response
