"""Credentials of a client for a hub's read policy: none, a bearer token or a signing principal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from http_message_signatures import (
    HTTPMessageSigner,
    HTTPSignatureAlgorithm,
    HTTPSignatureKeyResolver,
)

from veen.crypto import SigningKey

_COVERED = ("@method", "@target-uri")


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
        request = _Request(method, url, {})
        signer = HTTPMessageSigner(signature_algorithm=_Ed25519, key_resolver=_OneKey(self.key))
        signer.sign(
            request,
            key_id=self.name,
            created=datetime.fromtimestamp(self.clock(), tz=UTC),
            nonce=self.random(16).hex(),
            covered_component_ids=_COVERED,
            body=body,
        )
        return request.headers


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: str
    headers: dict[str, str]


class _OneKey(HTTPSignatureKeyResolver):
    def __init__(self, key: SigningKey) -> None:
        self._key = key

    def resolve_private_key(self, key_id: str) -> SigningKey:  # noqa: ARG002
        return self._key


class _Ed25519(HTTPSignatureAlgorithm):
    algorithm_id = "ed25519"

    def __init__(self, public_key: Any = None, private_key: Any = None) -> None:
        self._public = public_key
        self._private = private_key

    def sign(self, message: bytes) -> bytes:
        signature: bytes = self._private.sign(message)
        return signature
