"""Signed requests that were taken, remembered by all HTTP workers together (RFC 9421).

Who is asking: a bearer token or a signed request, mapped to a principal (Query API 7.1).
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
from veen.http_signature import KEPT_SEC, NotSigned, SignatureVerifier, SignedMessage

_REMEMBERED: Final = 1_000_000


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class TakenSignatures:
    """How long one is remembered goes by the time since boot, which no setting of the clock moves.

    What an earlier boot has left is remembered for as long again, from the first look at it.
    """

    def __init__(self, database: Database, steady: Callable[[], float] = _since_boot) -> None:
        self._db = database
        self._steady = steady

    def take(self, covered: bytes) -> None:
        """Refuse one that any worker took before; one that is forgotten is too old to be taken."""
        now = int(self._steady())
        until = now + KEPT_SEC
        try:
            with self._db.changing() as db:
                db.execute("UPDATE signatures SET until = ? WHERE until > ?", (until, until))
                db.execute("DELETE FROM signatures WHERE until < ?", (now,))
                (count,) = db.execute("SELECT count(*) FROM signatures").fetchone()
                if count >= _REMEMBERED:
                    raise NotSigned("too many signed requests at once: ask again later")
                db.execute("INSERT INTO signatures VALUES (?, ?)", (covered, until))
        except sqlite3.IntegrityError as error:
            raise NotSigned(
                "the signature was used before: sign again, with a new nonce"
            ) from error


_BEARER: Final = "bearer"


class QueryCredentials:
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
        by_token = self._principals.by_token(token)
        if scheme.lower() != _BEARER or by_token is None:
            raise _unauthorized("the token is nobody's")
        return by_token

    def _signed(self, body: bytes) -> QueryPrincipal:
        signed = self._signatures.verify(_message(), body)
        by_name = self._principals.by_name(signed.key_id)
        if by_name is None:
            raise NotSigned("the signature names no principal")
        self._taken.take(signed.covered)
        return by_name


def _unauthorized(message: str) -> Refusal:
    return Refusal(ErrorCode.UNAUTHORIZED, message)


def _message() -> SignedMessage:
    """The request by the target that was sent, before anything was decoded in it."""
    target = request.environ.get("RAW_URI", "")
    if not target.startswith("/"):
        target = request.full_path.removesuffix("?")
    url = f"{request.scheme}://{request.host}{target}"
    return SignedMessage(request.method, url, request.headers)
