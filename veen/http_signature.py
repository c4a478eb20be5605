"""Requests signed with an Ed25519 key: HTTP Message Signatures (RFC 9421), as servers read them."""

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
KEPT_SEC: Final = 2 * MAX_AGE_SEC
"""For how long a signature that was taken is to be remembered; after that it is too old."""

_TARGETS: Final = ({'"@target-uri"'}, {'"@path"', '"@query"'})


class NotSigned(VeenError):
    """A signature that does not speak for the request it came with."""


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """A request as the signature's rules see it; its body is covered by its digest.

    ``headers`` are those of the server's library, which keeps doubled ones apart.
    """

    method: str
    url: str
    headers: object


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """Whose signature holds, and a hash of all it covers: the same one is not taken twice."""

    key_id: str
    covered: bytes


class StrictEd25519(HTTPSignatureAlgorithm):
    """The project's one verifier, in the place of the library's more lenient one."""

    algorithm_id = "ed25519"

    def __init__(self, public_key: bytes = b"", private_key: object = None) -> None:
        self._public = public_key
        self._private = private_key

    def verify(self, signature: bytes, message: bytes) -> None:
        if not signature_is_valid(self._public, signature, message):
            raise InvalidSignature("not the principal's signature")


class _Keys(HTTPSignatureKeyResolver):
    def __init__(self, key_of: Callable[[str], bytes | None]) -> None:
        self._key_of = key_of

    def resolve_public_key(self, key_id: str) -> bytes | None:
        return self._key_of(key_id)


class SignatureVerifier:
    """Tells whose signature a request carries; ``key_of`` knows the keys by their names."""

    def __init__(self, key_of: Callable[[str], bytes | None]) -> None:
        self._verifier = HTTPMessageVerifier(
            signature_algorithm=StrictEd25519, key_resolver=_Keys(key_of)
        )

    def verify(self, message: SignedMessage, body: bytes) -> SignedRequest:
        """Refuse a signature that does not hold, is too old or covers too little."""
        try:
            (result,) = self._verifier.verify(
                message,
                max_age=timedelta(seconds=MAX_AGE_SEC),
                require_components=("@method",),
                body=body,
            )
        except HTTPMessageSignaturesException as error:
            raise NotSigned(f"the signature does not hold: {error}") from error
        covered = set(result.covered_components)
        if not any(target <= covered for target in _TARGETS):
            raise NotSigned("the signature covers neither @target-uri nor @path and @query")
        key_id = str(result.parameters["keyid"])
        return SignedRequest(key_id, h(repr(result.covered_components).encode()))
