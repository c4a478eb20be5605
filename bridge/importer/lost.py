"""Whether the ledger of an importer is lost, or older than what it tells of; only looked at."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from bridge.importer.commit import PLAN_NOTE
from bridge.importer.run import LAST_PLAN


def is_lost(ledger: Path, outbox: Path) -> bool:
    """As ``refuse_lost_ledger`` has it, without the identity whose outbox it is.

    The outbox is read first: a plan is in the ledger before it is handed over.
    """
    last = _value(outbox, "SELECT value FROM notes WHERE name = ?", PLAN_NOTE)
    if last is None:
        return False
    if _value(ledger, "SELECT value FROM told WHERE name = ?", LAST_PLAN) == last:
        return False
    return _value(ledger, "SELECT plan_id FROM plans WHERE plan_id = ?", last) is None


def _value(path: Path, query: str, name: str | bytes) -> bytes | None:
    """One value of a database that nothing is written to, nor beside; None where there is none."""
    log = path.with_name(f"{path.name}-wal")
    mode = "mode=ro" if log.exists() else "immutable=1"
    if not path.exists():
        return None
    address = f"{path.absolute().as_uri()}?{mode}"
    try:
        with closing(sqlite3.connect(address, uri=True)) as db:
            found = db.execute(query, (name,)).fetchone()
    except sqlite3.Error:
        return None
    return bytes(found[0]) if found else None
