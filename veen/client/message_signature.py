"""The signature of a principal over a request: HTTP message signatures (RFC 9421)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from http_message_signatures import (
    HTTPMessageSigner,
    HTTPSignatureAlgorithm,
    HTTPSignatureKeyResolver,
)

from veen.crypto import SigningKey

_COVERED: Final = ("@method", "@target-uri")


def signature_headers(
    key: SigningKey, name: str, created: int, nonce: str, request: tuple[str, str, bytes]
) -> dict[str, str]:
    """The headers with which the principal ``name`` signs a method, a URL and a body."""
    method, url, body = request
    message = _Request(method, url, {})
    signer = HTTPMessageSigner(signature_algorithm=_Ed25519, key_resolver=_OneKey(key))
    signer.sign(
        message,
        key_id=name,
        created=datetime.fromtimestamp(created, tz=UTC),
        nonce=nonce,
        covered_component_ids=_COVERED,
        body=body,
    )
    return message.headers


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
