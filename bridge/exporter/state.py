"""The exporter's state directory: its lock, its staging area, and its cache of the audit log.

The cache is derived: if it is lost or damaged, it is rebuilt from the log. It is used only when
the hub's log still has the root that it had at the last cached entry.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.audit_log import RecordedEntry, parse, read_log
from bridge.exporter.build import RolledBack
from bridge.stream_map import ONLINE_LOG
from veen.client.client import Client
from veen.digest import Hasher, h
from veen.errors import Malformed, VeenError
from veen.events import RecordEvent
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable, filelock
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

_VERSION: Final = 1
"""The version of the cache; a cache of another version is read again from the hub."""
_NO_PRINCIPAL: Final = bytes(32)
_MAX_BYTES: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class StoredEntries:
    """Cached entries from the first on, the root after the last of them, and their lines."""

    entries: tuple[RecordedEntry, ...] = ()
    root: bytes = b""
    lines: bytes = b""

    @property
    def last_seq(self) -> int:
        return self.entries[-1].seq if self.entries else 0


class ExportLog:
    """Cache of the audit log in two files: a line for each entry, and a head with their total
    size.
    """

    def __init__(self, folder: Path, author: bytes | None = None) -> None:
        self._author = author
        self._lines = folder / "log.jsonl"
        self._head = folder / "log.head"

    def read(self, reader: Client) -> tuple[RecordedEntry, ...]:
        """The whole log: cached entries, and newer entries, which are verified and then cached."""
        stored = self._stored()
        if stored.entries:
            _verify_goes_on(reader, stored)
        new = tuple(read_log(reader, ONLINE_LOG, stored.last_seq + 1, author=self._author))
        if new:
            self._store(stored, new, _root_at(reader, new[-1].seq))
        return (*stored.entries, *new)

    def _stored(self) -> StoredEntries:
        try:
            head = json.loads(self._head.read_bytes())
            if head.get("version", _VERSION) != _VERSION:
                return StoredEntries()
            with self._lines.open("rb") as file:
                lines = file.read(head["size"])
            if h(lines).hex() != head["sha256"]:
                return StoredEntries()
            entries = tuple(_decode(line) for line in lines.splitlines())
            return StoredEntries(entries, bytes.fromhex(head["root"]), lines)
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, Malformed):
            return StoredEntries()

    def _store(self, entries: StoredEntries, new: Sequence[RecordedEntry], root: bytes) -> None:
        """Append entries; the lines are on disk before the head counts them."""
        added = b"".join(_encode(entry) for entry in new)
        handle = os.open(self._lines, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, durable.FILE_MODE)
        try:
            durable.cut(handle, len(entries.lines))
            durable.append(handle, len(entries.lines), added)
        finally:
            os.close(handle)
        digest = Hasher()
        digest.update(entries.lines)
        digest.update(added)
        head = {
            "version": _VERSION,
            "root": root.hex(),
            "sha256": digest.digest().hex(),
            "size": len(entries.lines) + len(added),
        }
        durable.write(self._head, json.dumps(head, sort_keys=True).encode())


def _verify_goes_on(reader: Client, entries: StoredEntries) -> None:
    if _root_at(reader, entries.last_seq) != entries.root:
        raise RolledBack(
            f"{ONLINE_LOG} has another root at {entries.last_seq} than the one that was read "
            "before: the hub signed two histories (equivocation); stop it, and compare it "
            "with its archive"
        )


def _root_at(reader: Client, seq: int) -> bytes:
    """The root of the log after an entry, as signed and proven by the hub."""
    root = b""
    for pair in reader.read(ONLINE_LOG, from_seq=seq, to_seq=seq):
        root = pair.receipt.mmr_root
    return root


def _encode(entry: RecordedEntry) -> bytes:
    line = [
        entry.seq,
        entry.hub_ts,
        entry.event.KIND,
        entry.event.document(),
    ]
    return json.dumps(line, sort_keys=True).encode() + b"\n"


def _decode(line: bytes) -> RecordedEntry:
    fields: Any = json.loads(line)
    seq, hub_ts, kind, document = fields
    event = RecordEvent(
        subject_id="",
        principal_id=_NO_PRINCIPAL,
        event_type=kind,
        event_time=0,
        origin="",
        payload=AnyItem(value_to_cbor(document)),
    )
    return RecordedEntry(seq, hub_ts, parse(event))


class ExporterBusy(VeenError):
    """Another exporter holds the lock."""

    error_code = "BUSY"


@dataclass(frozen=True, slots=True)
class ExportState:
    root: Path

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def _last(self) -> Path:
        return self.root / "checkpoint.cbor"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; it is released when the process ends, however it ends."""
        durable.make_directory(self.root)
        busy = ExporterBusy(f"another export is running on {self.root}; wait for its end")
        with filelock.locked(self.root / "lock", busy=busy):
            yield

    def attempt(self, name: str) -> Path:
        """An empty private directory; what an earlier attempt left is removed."""
        self.clear()
        folder = self.staging / name
        durable.make_directory(folder)
        return folder

    def clear(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)

    def left(self) -> list[Path]:
        """What a failed run has left behind."""
        return sorted(self.staging.iterdir()) if self.staging.is_dir() else []

    def last_checkpoint(self) -> RecorderCheckpoint | None:
        try:
            with self._last.open("rb") as file:
                return RecorderCheckpoint.decode(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return None

    def store_checkpoint(self, checkpoint: RecorderCheckpoint) -> None:
        durable.write(self._last, checkpoint.encode())
