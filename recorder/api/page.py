"""A static page for trying a query, served from files of this package only."""

from __future__ import annotations

from importlib import resources
from typing import Final

from flask import Blueprint, Response

bp = Blueprint("page", __name__)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@bp.get("/")
def index() -> Response:
    return _file("index.html", "text/html; charset=utf-8")


@bp.get("/page.js")
def script() -> Response:
    return _file("page.js", "text/javascript; charset=utf-8")


@bp.get("/page.css")
def style() -> Response:
    return _file("page.css", "text/css; charset=utf-8")


def _file(name: str, content_type: str) -> Response:
    body = (resources.files("recorder.api") / "page_files" / name).read_bytes()
    response = Response(body, content_type=content_type)
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
