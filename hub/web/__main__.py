"""Entry point of the HTTP workers of a hub: ``python -m hub.web``, started by the supervisor."""

from __future__ import annotations

import sys
from typing import Any

from gunicorn.app.base import BaseApplication

from hub.api.app import create_app
from hub.settings import HubSettings
from hub.storage.datadir import DataDir
from hub.supervisor import begin_as_child, parse_launch
from veen.system.http_server import AEAD_CIPHERS, DeadlineWorker, ServiceLogger


class HubApplication(BaseApplication):  # type: ignore[misc]
    def __init__(self, datadir: DataDir, settings: HubSettings) -> None:
        self._datadir = datadir
        self._settings = settings
        super().__init__()

    def load_config(self) -> None:
        for key, value in _options(self._settings).items():
            self.cfg.set(key, value)

    def load(self) -> object:
        return create_app(self._settings, self._datadir)


def _options(settings: HubSettings) -> dict[str, Any]:
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
        options |= {"certfile": settings.tls_cert, "keyfile": settings.tls_key}
        options["ciphers"] = AEAD_CIPHERS
    if settings.tls_client_ca is not None:
        options |= {"ca_certs": settings.tls_client_ca, "cert_reqs": 2}
    return options


def main(arguments: list[str]) -> int:
    launch = parse_launch(arguments)
    begin_as_child(launch)
    HubApplication(launch.datadir, launch.settings()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
