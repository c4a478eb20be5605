"""The Flask application of a hub, built by ``create_app`` for one data directory (spec 10)."""

from __future__ import annotations

from flask import Flask

from hub.api import admin, errors, health, openapi, read, submit
from hub.api.context import install_context
from hub.settings import HubSettings
from hub.storage.datadir import DataDir


def create_app(settings: HubSettings, datadir: DataDir) -> Flask:
    """Build the application. The sequencer must have created the directory's identity before."""
    app = Flask(__name__, static_folder=None)
    install_context(app, settings, datadir)
    errors.install(app)
    for module in (submit, read, admin, health, openapi):
        app.register_blueprint(module.bp)
    return app
