"""Signed requests that were taken, remembered by all HTTP workers together (RFC 9421)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Final

from recorder.service.database import Database
from veen.http_signature import KEPT_SEC, NotSigned

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
