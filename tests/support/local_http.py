"""What answers HTTP in place of a service: on 127.0.0.1, at a free port, while a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answering(BaseHTTPRequestHandler):
    """A test says in ``get`` and ``post`` how it answers."""

    def get(self) -> None:
        self.say(405)

    def post(self) -> None:
        self.say(405)

    def do_GET(self) -> None:
        self.get()

    def do_POST(self) -> None:
        self.post()

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def say(
        self, status: int, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(handler: type[Answering]) -> Iterator[str]:
    """The URL at which it answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
