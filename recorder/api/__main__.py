"""The HTTP workers of a query service as a process: ``python -m recorder.api``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gunicorn.app.base import BaseApplication

from recorder.api.app import create_app
from recorder.service.supervisor import begin_as_child, parse_launch
from recorder.settings import QuerySettings, RecorderSettings
from veen.system.http_server import AEAD_CIPHERS, DeadlineWorker, ServiceLogger


class QueryApplication(BaseApplication):  # type: ignore[misc]
    """The gunicorn application.

    ``when_ready`` is called when connections are accepted, before the workers start.
    """

    def __init__(self, settings: RecorderSettings, when_ready: Callable[[], None]) -> None:
        self._settings = settings
        self._when_ready = when_ready
        super().__init__()

    def load_config(self) -> None:
        for key, value in options_of(self._settings.query).items():
            self.cfg.set(key, value)
        self.cfg.set("when_ready", lambda _server: self._when_ready())

    def load(self) -> object:
        return create_app(self._settings)


def options_of(settings: QuerySettings) -> dict[str, Any]:
    DeadlineWorker.request_timeout_sec = settings.request_timeout_sec
    DeadlineWorker.body_timeout_sec = settings.body_timeout_sec
    options: dict[str, Any] = {
        "bind": settings.listen,
        "workers": settings.workers,
        "threads": settings.threads,
        "worker_class": DeadlineWorker,
        "worker_connections": 1_000,
        "backlog": 512,
        "keepalive": 30,
        "timeout": 2 * settings.request_timeout_sec,
        "graceful_timeout": settings.request_timeout_sec,
        "loglevel": "warning",
        "logger_class": ServiceLogger,
        "control_socket_disable": True,
    }
    if settings.tls_cert is not None:
        options |= {"certfile": str(settings.tls_cert), "keyfile": str(settings.tls_key)}
        options["ciphers"] = AEAD_CIPHERS
    if settings.tls_client_ca is not None:
        options |= {"ca_certs": str(settings.tls_client_ca), "cert_reqs": 2}
    return options


def main(arguments: list[str]) -> int:
    launch = parse_launch(arguments)
    begin_as_child(launch)
    QueryApplication(launch.settings(), launch.say_ready).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
