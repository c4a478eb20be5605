"""The tables of the import ledger, and the rows that cross its border."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bridge.audit_events import Equivocation

VERSION: Final = 1
ENTRY_BYTES: Final = 64
"""Of one event: the leaf, then the root of the source's range at it."""

SCHEMA: Final = """
CREATE TABLE bundles (
  bundle_id BLOB PRIMARY KEY, state TEXT NOT NULL, source_hub_id BLOB NOT NULL,
  stream TEXT NOT NULL, target TEXT NOT NULL, from_seq INTEGER NOT NULL, to_seq INTEGER NOT NULL,
  checkpoint_id BLOB NOT NULL, checkpoint_at INTEGER NOT NULL, sha256 BLOB NOT NULL,
  told TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX bundle_state ON bundles (state);
CREATE TABLE plans (
  bundle_id BLOB PRIMARY KEY, plan_id BLOB NOT NULL UNIQUE, source TEXT NOT NULL,
  inbox TEXT NOT NULL, import_time INTEGER NOT NULL, written INTEGER NOT NULL,
  duplicates INTEGER NOT NULL, kept_out TEXT NOT NULL, base_client_seq INTEGER NOT NULL,
  base_seq INTEGER NOT NULL, accepted_gap TEXT, verification TEXT NOT NULL, done INTEGER NOT NULL,
  target_to INTEGER NOT NULL, target_root BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE runs (
  source_hub_id BLOB NOT NULL, stream TEXT NOT NULL, from_seq INTEGER NOT NULL,
  to_seq INTEGER NOT NULL, bundle_id BLOB NOT NULL, is_held INTEGER NOT NULL,
  entries BLOB NOT NULL, PRIMARY KEY (source_hub_id, stream, from_seq)
);
CREATE TABLE closings (n INTEGER PRIMARY KEY, token BLOB NOT NULL, document TEXT NOT NULL);
CREATE TABLE frozen (
  source_hub_id BLOB NOT NULL, stream TEXT NOT NULL, seq INTEGER NOT NULL,
  bundle_id BLOB NOT NULL, PRIMARY KEY (source_hub_id, stream)
) WITHOUT ROWID;
CREATE TABLE carriers (
  bridge_id BLOB NOT NULL, n INTEGER NOT NULL, entry BLOB NOT NULL,
  PRIMARY KEY (bridge_id, n, entry)
) WITHOUT ROWID;
CREATE TABLE told (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


class Stream(NamedTuple):
    """One stream of a source hub."""

    source_hub_id: bytes
    name: str


class Span(NamedTuple):
    """Events of a stream, both ends included."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class Run(NamedTuple):
    """Events that are held, or planned, of one bundle; ``entries`` has ENTRY_BYTES of each."""

    span: Span
    bundle_id: bytes
    entries: bytes

    def leaf(self, seq: int) -> bytes:
        at = (seq - self.span.first) * ENTRY_BYTES
        return self.entries[at : at + 32]

    def root(self, seq: int) -> bytes:
        at = (seq - self.span.first) * ENTRY_BYTES
        return self.entries[at + 32 : at + ENTRY_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRow:
    """A bundle that has been looked at, and how far it has come."""

    bundle_id: bytes
    state: str
    source_hub_id: bytes
    stream: str
    target: str
    from_seq: int
    to_seq: int
    checkpoint_id: bytes
    checkpoint_at: int
    sha256: bytes
    """Of the bundle's bytes."""
    told: str = ""

    @property
    def count(self) -> int:
        return self.to_seq - self.from_seq + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an import is about to write, or has written once ``done``.

    ``base_client_seq`` and ``base_seq`` are where the target stream stood before.
    """

    bundle_id: bytes
    plan_id: bytes
    source: str
    inbox: str
    import_time: int
    written: int
    duplicates: int
    kept_out: str
    """Exclusions, as JSON."""
    base_client_seq: int
    base_seq: int
    accepted_gap: str | None
    verification: str
    done: bool = False
    target_to: int = 0
    target_root: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What is left to do about an outcome, in this order; each step can be repeated.

    ``bodies`` are audit entries. Paths are inside the airlock.
    """

    token: bytes
    bodies: tuple[bytes, ...] = ()
    writes: tuple[tuple[str, str], ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    removals: tuple[str, ...] = ()

    def document(self) -> str:
        """All but the token, as JSON."""
        return json.dumps(
            {
                "bodies": [one.hex() for one in self.bodies],
                "writes": self.writes,
                "moves": self.moves,
                "removals": self.removals,
            }
        )

    @classmethod
    def read(cls, token: bytes, document: str) -> Closing:
        found = json.loads(document)
        return cls(
            token=token,
            bodies=tuple(bytes.fromhex(one) for one in found["bodies"]),
            writes=tuple((path, text) for path, text in found["writes"]),
            moves=tuple((old, new) for old, new in found["moves"]),
            removals=tuple(found["removals"]),
        )


class Uncovered(NamedTuple):
    """A bundle that is imported and that no checkpoint is known to cover; ``target_to`` is where
    its last event stands, None where its plan tells.
    """

    bundle_id: bytes
    target_to: int | None


class Restored(NamedTuple):
    """What a ledger is made again from."""

    rows: Sequence[BundleRow]
    runs: Sequence[tuple[Stream, Run]]
    frozen: Sequence[tuple[Stream, Equivocation]]
    uncovered: Sequence[Uncovered]
