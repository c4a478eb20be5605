"""The HTTP edge of a hub, made by ``create_app`` for one data directory (spec 10)."""

from __future__ import annotations

import secrets

from flask import Flask, Response, g

from hub.api import (
    edge,
    equivocation,
    errors,
    health,
    openapi,
    proofs,
    receipts,
    recorder_checkpoints,
    stream,
    streams,
    submit,
    tooling,
)
from hub.settings import Settings
from hub.storage.datadir import DataDir


def create_app(settings: Settings, datadir: DataDir) -> Flask:
    """The sequencer must have created the directory's identity before this is called."""
    app = Flask(__name__, static_folder=None)
    edge.install(app, settings, datadir)
    errors.install(app)
    app.before_request(_name_request)
    app.after_request(_send_name)
    for part in (
        submit, stream, receipts, tooling, streams, proofs, recorder_checkpoints, equivocation,
        health, openapi,
    ):  # fmt: skip
        app.register_blueprint(part.bp)
    return app


def _name_request() -> None:
    g.request_id = secrets.token_hex(8)


def _send_name(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.request_id
    return response
