"""Who is asking: a bearer token or a signed request, checked against the policy."""

from __future__ import annotations

import hmac

from flask import request

from hub.api.message_signature import SignatureGuard
from hub.api.refused import Refused
from hub.policy import Policy, Principal
from veen.digest import h
from veen.errors import Code
from veen.http_signature import NotSigned, SignedMessage

_BEARER = "bearer"


class Credentials:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._signatures = SignatureGuard(policy)

    def principal(self, body: bytes) -> Principal:
        """The principal behind the current request, or E.UNAUTHORIZED."""
        authorization = request.headers.get("Authorization")
        if authorization is not None:
            return self._bearer(authorization)
        if "Signature" not in request.headers:
            raise Refused(Code.UNAUTHORIZED, "a bearer token or a signed request is due")
        try:
            return self._signatures.principal(_message(), body)
        except NotSigned as error:
            raise Refused(Code.UNAUTHORIZED, str(error)) from error

    def _bearer(self, authorization: str) -> Principal:
        """Every principal is compared, so that time does not tell which one came close."""
        scheme, _, token = authorization.partition(" ")
        digest = h(token.encode())
        matching = [
            one
            for one in self._policy.principals
            if hmac.compare_digest(one.token_sha256 or b"", digest)
        ]
        if scheme.lower() != _BEARER or not matching:
            raise Refused(Code.UNAUTHORIZED, "the token is nobody's")
        return matching[0]


def _message() -> SignedMessage:
    """The request by the target that was sent, before anything was decoded in it."""
    target = request.environ.get("RAW_URI", "")
    if not target.startswith("/"):
        target = request.full_path.removesuffix("?")
    url = f"{request.scheme}://{request.host}{target}"
    return SignedMessage(request.method, url, request.headers)
