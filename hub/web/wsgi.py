"""The Flask application behind the event loop: a WSGI call in a thread for each request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from hub.web.message import Message, Reply

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class WsgiBridge:
    """Calls a WSGI application with a body that was read before."""

    def __init__(self, app: WsgiApp, threads: Executor) -> None:
        self._app = app
        self._threads = threads

    async def answer(self, scope: Message, body: bytes) -> Reply:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._call, environ_of(scope, body))

    def _call(self, environ: dict[str, Any]) -> Reply:
        started: list[tuple[int, list[tuple[bytes, bytes]]]] = []

        def start(status: str, headers: list[tuple[str, str]], _exc_info: Any = None) -> None:
            encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            started.append((int(status[:3]), encoded))

        parts = self._app(environ, start)
        try:
            body = b"".join(parts)
        finally:
            close = getattr(parts, "close", None)
            if close is not None:
                close()
        status, headers = started[-1]
        return Reply(status, headers, body)


def environ_of(scope: Message, body: bytes) -> dict[str, Any]:
    """The environment of a request (PEP 3333), with the target as it was sent in RAW_URI."""
    target: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(target).decode("latin-1"),
        "QUERY_STRING": query.decode("latin-1"),
        "RAW_URI": (target + b"?" + query if query else target).decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": BytesIO(body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    environ["SERVER_NAME"], environ["SERVER_PORT"] = _address(scope["server"])
    environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = _address(scope["client"])
    _add_headers(environ, scope["headers"])
    return environ


def _address(pair: tuple[str, int] | None) -> tuple[str, str]:
    return (pair[0], str(pair[1])) if pair else ("", "")


def _add_headers(environ: dict[str, Any], headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Add the headers; the values of one that is repeated are joined by commas."""
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1").upper().replace("-", "_")
        value = raw_value.decode("latin-1")
        if name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            environ[name] = value
            continue
        key = f"HTTP_{name}"
        environ[key] = f"{environ[key]},{value}" if key in environ else value
