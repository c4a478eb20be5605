"""Credentials of a client for a hub's read policy: none, a bearer token or a signing principal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from veen.crypto import SigningKey


class Credentials(Protocol):
    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        """The headers that authenticate this request."""


@dataclass(frozen=True, slots=True)
class Anonymous:
    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:  # noqa: ARG002
        return {}


@dataclass(frozen=True, slots=True)
class Bearer:
    token: str = field(repr=False)

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:  # noqa: ARG002
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True, slots=True)
class Principal:
    """Signs each request with its key (RFC 9421), under the name the hub's policy gives it."""

    name: str
    key: SigningKey
    clock: Callable[[], int]
    random: Callable[[int], bytes]

    def headers(self, method: str, url: str, body: bytes) -> dict[str, str]:
        # Imported here, since it takes longer than a request, and few clients sign theirs.
        from veen.client.message_signature import signature_headers  # noqa: PLC0415

        nonce = self.random(16).hex()
        return signature_headers(self.key, self.name, self.clock(), nonce, (method, url, body))
