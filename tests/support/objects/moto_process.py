"""A moto server on a free port, which it prints.

S3 promises that a conditional put is atomic; moto checks and writes in two steps, so writes take
turns here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


def one_write_at_a_time(app: Wsgi) -> Wsgi:
    lock = threading.Lock()

    def call(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in {"GET", "HEAD"}:
            return app(environ, start_response)
        with lock:
            return list(app(environ, start_response))

    return call


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = one_write_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
