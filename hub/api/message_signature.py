"""Requests signed with a principal's Ed25519 key: HTTP Message Signatures (RFC 9421)."""

from __future__ import annotations

import threading
from collections import OrderedDict
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
from werkzeug.datastructures import Headers

from hub.policy import Policy, Principal
from veen import sign
from veen.digest import h
from veen.errors import VeenError

MAX_AGE_SEC: Final = 300
_REMEMBERED: Final = 65_536
_TARGETS: Final = ({'"@target-uri"'}, {'"@path"', '"@query"'})


class NotSigned(VeenError):
    """A signature that does not speak for the request it came with."""


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """A request as the signature's rules see it; its body is covered by its digest."""

    method: str
    url: str
    headers: Headers


class StrictEd25519(HTTPSignatureAlgorithm):
    """The project's one verifier, in the place of the library's more lenient one."""

    algorithm_id = "ed25519"

    def __init__(self, public_key: bytes = b"", private_key: object = None) -> None:
        self._public = public_key
        self._private = private_key

    def verify(self, signature: bytes, message: bytes) -> None:
        if not sign.is_valid(self._public, signature, message):
            raise InvalidSignature("not the principal's signature")


class _PrincipalKeys(HTTPSignatureKeyResolver):
    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def resolve_public_key(self, key_id: str) -> bytes | None:
        principal = self._policy.by_name(key_id)
        return principal.public_key if principal else None


class SignatureGuard:
    """Tells whose signature a request carries, and takes each signature once."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._verifier = HTTPMessageVerifier(
            signature_algorithm=StrictEd25519, key_resolver=_PrincipalKeys(policy)
        )
        self._taken: OrderedDict[bytes, int] = OrderedDict()
        self._guard = threading.Lock()

    def principal(self, message: SignedMessage, body: bytes, now: int) -> Principal:
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
        principal = self._policy.by_name(str(result.parameters["keyid"]))
        if principal is None:
            raise NotSigned("the signature names no principal")
        self._take(h(repr(result.covered_components).encode()), now)
        return principal

    def _take(self, signed: bytes, now: int) -> None:
        """Refuse one that was taken before. Whatever is forgotten is too old to be taken."""
        with self._guard:
            while self._taken and next(iter(self._taken.values())) < now:
                self._taken.popitem(last=False)
            if signed in self._taken:
                raise NotSigned("the signature was used before: sign again, with a new nonce")
            if len(self._taken) >= _REMEMBERED:
                raise NotSigned("too many signed requests at once: ask again later")
            self._taken[signed] = now + 2 * MAX_AGE_SEC
