"""The tables of the outbox, and how a flight lies in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from veen.client.flight import Flight

VERSION: Final = 2
_NOTES: Final = "CREATE TABLE notes (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
UPGRADES: Final = {1: _NOTES}
"""By the version it comes from: what an older outbox lacks."""

SCHEMA: Final = f"""
CREATE TABLE events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, hub BLOB NOT NULL, lane BLOB NOT NULL, sealed BLOB NOT NULL
);
CREATE INDEX event_lane ON events (lane, id);
CREATE TABLE flights (
  n INTEGER PRIMARY KEY, event INTEGER NOT NULL, label BLOB NOT NULL, epoch INTEGER NOT NULL,
  client_id BLOB NOT NULL, client_seq INTEGER NOT NULL, prev_ack INTEGER NOT NULL, auth_ref BLOB,
  leaf BLOB NOT NULL, coids BLOB NOT NULL, msg BLOB NOT NULL, withdrawn INTEGER NOT NULL
);
CREATE INDEX flight_slot ON flights (label, client_id, client_seq);
CREATE INDEX flight_event ON flights (event);
CREATE TABLE late (event INTEGER PRIMARY KEY, receipt BLOB NOT NULL);
{_NOTES}
"""
COLUMNS: Final = (
    "event, label, epoch, client_id, client_seq, prev_ack, auth_ref, leaf, coids, msg, withdrawn"
)
PUT: Final = f"INSERT INTO flights ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
SLOT: Final = "label = ? AND client_id = ? AND client_seq = ?"


def row_of(flight: Flight) -> tuple[object, ...]:
    return (
        flight.event_id, flight.label, flight.epoch, flight.client_id, flight.client_seq,
        flight.prev_ack, flight.auth_ref, flight.leaf, flight.coids, flight.msg, flight.withdrawn,
    )  # fmt: skip


def flight_of(row: Sequence[Any]) -> Flight:
    return Flight(
        event_id=row[0], label=row[1], epoch=row[2], client_id=row[3], client_seq=row[4],
        prev_ack=row[5], auth_ref=row[6], leaf=row[7], coids=row[8], msg=row[9],
        withdrawn=bool(row[10]),
    )  # fmt: skip
