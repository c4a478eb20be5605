"""Authentication of query requests: bearer tokens and signed requests (Query API 7.1, RFC 9421).

Signatures already used are stored in the service's database, which all HTTP workers share, so
that a signed request cannot be replayed at another worker.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Final

from flask import request

from recorder.service.database import Database
from recorder.service.errors import ErrorCode, Refusal
from recorder.service.requests import Principals
from recorder.settings import QueryPrincipal
from veen.http_signature import SIGNATURE_MEMORY_SEC, NotSigned, SignatureVerifier, SignedMessage

_MAX_SIGNATURES: Final = 1_000_000
_BEARER: Final = "bearer"


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class TakenSignatures:
    """Signatures already used, shared by all HTTP workers.

    Expiry goes by the time since boot, which setting the clock does not change. Signatures stored
    during an earlier boot are kept for the full period again.
    """

    def __init__(self, database: Database, steady: Callable[[], float] = _since_boot) -> None:
        self._db = database
        self._steady = steady

    def take(self, covered: bytes) -> None:
        """Refuse a signature that any worker has seen before.

        An expired one is too old to be accepted.
        """
        now = int(self._steady())
        until = now + SIGNATURE_MEMORY_SEC
        try:
            with self._db.changing() as db:
                db.execute("UPDATE signatures SET until = ? WHERE until > ?", (until, until))
                db.execute("DELETE FROM signatures WHERE until < ?", (now,))
                (count,) = db.execute("SELECT count(*) FROM signatures").fetchone()
                if count >= _MAX_SIGNATURES:
                    raise NotSigned("too many signed requests at once: ask again later")
                db.execute("INSERT INTO signatures VALUES (?, ?)", (covered, until))
        except sqlite3.IntegrityError as error:
            raise NotSigned(
                "the signature was used before: sign again, with a new nonce"
            ) from error


class QueryCredentials:
    def __init__(self, principals: Principals, taken: TakenSignatures) -> None:
        self._principals = principals
        self._taken = taken
        self._signatures = SignatureVerifier(principals.key_of)

    def principal(self) -> QueryPrincipal:
        """Return the principal of the current request; the error is the same for every failure."""
        authorization = request.headers.get("Authorization")
        if authorization is not None:
            return self._bearer(authorization)
        if "Signature" not in request.headers:
            raise _unauthorized("expected a bearer token or a signed request, got neither")
        try:
            return self._signed(request.get_data())
        except NotSigned as error:
            raise _unauthorized(str(error)) from error

    def _bearer(self, authorization: str) -> QueryPrincipal:
        scheme, _, token = authorization.partition(" ")
        principal = self._principals.by_token(token)
        if scheme.lower() != _BEARER or principal is None:
            raise _unauthorized("the token belongs to no principal; see [[query.principals]]")
        return principal

    def _signed(self, body: bytes) -> QueryPrincipal:
        signed = self._signatures.verify(_message(), body)
        principal = self._principals.by_name(signed.key_id)
        if principal is None:
            raise NotSigned(
                "the key of the signature belongs to no principal; see [[query.principals]]"
            )
        self._taken.take(signed.covered)
        return principal


def _unauthorized(message: str) -> Refusal:
    return Refusal(ErrorCode.UNAUTHORIZED, message)


def _message() -> SignedMessage:
    """The request with its target as sent, before any decoding."""
    target = request.environ.get("RAW_URI", "")
    if not target.startswith("/"):
        target = request.full_path.removesuffix("?")
    url = f"{request.scheme}://{request.host}{target}"
    return SignedMessage(request.method, url, request.headers)
