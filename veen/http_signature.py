"""Verification of requests signed with Ed25519: HTTP Message Signatures (RFC 9421)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from http_message_signatures import (
    HTTPMessageSignaturesException,
    HTTPMessageVerifier,
    HTTPSignatureAlgorithm,
    HTTPSignatureKeyResolver,
    InvalidSignature,
)

from veen.crypto import signature_is_valid
from veen.digest import h
from veen.errors import VeenError

MAX_AGE_SEC: Final = 300
SIGNATURE_MEMORY_SEC: Final = 2 * MAX_AGE_SEC
"""How long a used signature must be remembered; after that it is too old to be accepted."""

_TARGETS: Final = ({'"@target-uri"'}, {'"@path"', '"@query"'})


class NotSigned(VeenError):
    """A request without a valid signature."""


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """A request as RFC 9421 covers it; the body is covered by its digest.

    ``headers`` are those of the server's library, which keeps repeated headers separate.
    """

    method: str
    url: str
    headers: object


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The signer of a request, and a hash of what is covered, to detect replays."""

    key_id: str
    covered: bytes


class StrictEd25519(HTTPSignatureAlgorithm):
    """The project's verifier in place of the library's, which is more lenient."""

    algorithm_id = "ed25519"

    def __init__(self, public_key: bytes = b"", private_key: object = None) -> None:
        self._public = public_key
        self._private = private_key

    def verify(self, signature: bytes, message: bytes) -> None:
        if not signature_is_valid(self._public, signature, message):
            raise InvalidSignature("the signature was not made by the key of the principal")


class _Keys(HTTPSignatureKeyResolver):
    def __init__(self, key_of: Callable[[str], bytes | None]) -> None:
        self._key_of = key_of

    def resolve_public_key(self, key_id: str) -> bytes | None:
        return self._key_of(key_id)


class SignatureVerifier:
    """Verifies signed requests; ``key_of`` gives the public key of a name."""

    def __init__(self, key_of: Callable[[str], bytes | None]) -> None:
        self._verifier = HTTPMessageVerifier(
            signature_algorithm=StrictEd25519, key_resolver=_Keys(key_of)
        )

    def verify(self, message: SignedMessage, body: bytes) -> SignedRequest:
        """Raise NotSigned for a signature that is invalid, too old or covers too little."""
        try:
            (verified,) = self._verifier.verify(
                message,
                max_age=timedelta(seconds=MAX_AGE_SEC),
                require_components=("@method",),
                body=body,
            )
        except HTTPMessageSignaturesException as error:
            raise NotSigned(f"the signature is invalid: {error}") from error
        covered = set(verified.covered_components)
        if not any(target <= covered for target in _TARGETS):
            raise NotSigned("the signature covers neither @target-uri nor @path and @query")
        key_id = str(verified.parameters["keyid"])
        return SignedRequest(key_id, h(repr(verified.covered_components).encode()))
