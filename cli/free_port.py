"""A port of this host for a server that may be stopped and started again on it."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from typing import Final

_PORTS: Final = range(20_000, 32_000)


def free_port() -> int:
    """One that nobody has, below those that the kernel gives out: it stays free between starts."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
