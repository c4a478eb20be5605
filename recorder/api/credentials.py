"""Who is asking: a bearer token or a signed request, mapped to a principal (Query API 7.1)."""

from __future__ import annotations

from typing import Final

from flask import request

from recorder.service.principals import Principals
from recorder.service.refusal import ErrorCode, Refusal
from recorder.service.signatures import TakenSignatures
from recorder.settings_query import QueryPrincipal
from veen.http_signature import NotSigned, SignatureVerifier, SignedMessage

_BEARER: Final = "bearer"


class Credentials:
    def __init__(self, principals: Principals, taken: TakenSignatures) -> None:
        self._principals = principals
        self._taken = taken
        self._signatures = SignatureVerifier(principals.key_of)

    def principal(self) -> QueryPrincipal:
        """The principal behind the current request, or unauthorized: one answer for all ways."""
        authorization = request.headers.get("Authorization")
        if authorization is not None:
            return self._bearer(authorization)
        if "Signature" not in request.headers:
            raise _unauthorized("a bearer token or a signed request is due")
        try:
            return self._signed(request.get_data())
        except NotSigned as error:
            raise _unauthorized(str(error)) from error

    def _bearer(self, authorization: str) -> QueryPrincipal:
        scheme, _, token = authorization.partition(" ")
        found = self._principals.by_token(token)
        if scheme.lower() != _BEARER or found is None:
            raise _unauthorized("the token is nobody's")
        return found

    def _signed(self, body: bytes) -> QueryPrincipal:
        signed = self._signatures.verify(_message(), body)
        found = self._principals.by_name(signed.key_id)
        if found is None:
            raise NotSigned("the signature names no principal")
        self._taken.take(signed.covered)
        return found


def _unauthorized(message: str) -> Refusal:
    return Refusal(ErrorCode.UNAUTHORIZED, message)


def _message() -> SignedMessage:
    """The request by the target that was sent, before anything was decoded in it."""
    target = request.environ.get("RAW_URI", "")
    if not target.startswith("/"):
        target = request.full_path.removesuffix("?")
    url = f"{request.scheme}://{request.host}{target}"
    return SignedMessage(request.method, url, request.headers)
