"""How the connection to a hub is protected: TLS version, cipher and certificate (SH0)."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from veen.client.errors import Unreachable
from veen.errors import VeenError

_PORT: Final = 443
_AEAD: Final = ("GCM", "CHACHA20", "CCM")


class NoTls(VeenError):
    """An address without TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsInfo:
    version: str
    cipher: str
    compression: str | None
    subject: str
    issuer: str
    not_after: int

    @property
    def is_aead(self) -> bool:
        return any(name in self.cipher for name in _AEAD)


def tls_info(url: str, tls: ssl.SSLContext | None, timeout_sec: float) -> TlsInfo:
    """Shake hands as a client would, and tell what was agreed upon."""
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.hostname is None:
        raise NoTls(f"{url} has no TLS: what goes there can be read on the way")
    context = tls or ssl.create_default_context()
    where = (parts.hostname, parts.port or _PORT)
    try:
        with (
            socket.create_connection(where, timeout=timeout_sec) as line,
            context.wrap_socket(line, server_hostname=parts.hostname) as secured,
        ):
            return _told(secured)
    except OSError as error:
        raise Unreachable(f"{url} does not answer: {error}") from error


def _told(secured: ssl.SSLSocket) -> TlsInfo:
    certificate: dict[str, Any] = secured.getpeercert() or {}
    name, _, _ = secured.cipher() or ("none", "", 0)
    return TlsInfo(
        version=secured.version() or "none",
        cipher=name,
        compression=secured.compression(),
        subject=_name(certificate["subject"]),
        issuer=_name(certificate["issuer"]),
        not_after=int(ssl.cert_time_to_seconds(certificate["notAfter"])),
    )


def _name(parts: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    return ", ".join(f"{key}={value}" for part in parts for key, value in part)
