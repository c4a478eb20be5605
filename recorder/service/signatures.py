"""Signed requests that were taken, remembered by all HTTP workers together (RFC 9421)."""

from __future__ import annotations

import sqlite3
from typing import Final

from recorder.service.database import Database
from veen.http_signature import KEPT_SEC, NotSigned

_REMEMBERED: Final = 1_000_000


class TakenSignatures:
    def __init__(self, database: Database) -> None:
        self._db = database

    def take(self, covered: bytes, now: int) -> None:
        """Refuse one that any worker took before; one that is forgotten is too old to be taken."""
        try:
            with self._db.changing() as db:
                db.execute("DELETE FROM signatures WHERE until < ?", (now,))
                (count,) = db.execute("SELECT count(*) FROM signatures").fetchone()
                if count >= _REMEMBERED:
                    raise NotSigned("too many signed requests at once: ask again later")
                db.execute("INSERT INTO signatures VALUES (?, ?)", (covered, now + KEPT_SEC))
        except sqlite3.IntegrityError as error:
            raise NotSigned(
                "the signature was used before: sign again, with a new nonce"
            ) from error
