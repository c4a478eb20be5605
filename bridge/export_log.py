"""What the exporter has read of its audit log, kept so that the next run reads only what is new.

It is derived: lost or damaged, it is made again from the log. It is used only when the hub's log
still has the root it had at the last entry kept, and so every entry before it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.audit import Recorded, read_log
from bridge.audit_events import parse
from bridge.exporter import RolledBack
from bridge.stream_map import ONLINE_LOG
from veen import durable, json_body
from veen.client.client import Client
from veen.digest import Hasher, h
from veen.errors import Malformed
from veen.overlay.body import AnyItem
from veen.record_event import RecordEvent

_NOBODY: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class Kept:
    """Entries from the first on, the root behind the last of them, and how many bytes they are."""

    entries: tuple[Recorded, ...] = ()
    root: bytes = b""
    lines: bytes = b""

    @property
    def last_seq(self) -> int:
        return self.entries[-1].seq if self.entries else 0


class ExportLog:
    """Two files: one line for each entry, and a head that says how much of them counts."""

    def __init__(self, folder: Path, author: bytes | None = None) -> None:
        self._author = author
        self._lines = folder / "log.jsonl"
        self._head = folder / "log.head"

    def read(self, reader: Client) -> tuple[Recorded, ...]:
        """The whole log: what is kept, and what came since, verified and kept in turn."""
        kept = self._kept()
        if kept.entries:
            _verify_goes_on(reader, kept)
        new = tuple(read_log(reader, ONLINE_LOG, kept.last_seq + 1, author=self._author))
        if new:
            self._keep(kept, new, _root_at(reader, new[-1].seq))
        return (*kept.entries, *new)

    def _kept(self) -> Kept:
        try:
            head = json.loads(self._head.read_bytes())
            with self._lines.open("rb") as file:
                lines = file.read(head["size"])
            if h(lines).hex() != head["sha256"]:
                return Kept()
            entries = tuple(_decode(line) for line in lines.splitlines())
            return Kept(entries, bytes.fromhex(head["root"]), lines)
        except (FileNotFoundError, ValueError, KeyError, TypeError, Malformed):
            return Kept()

    def _keep(self, kept: Kept, new: Sequence[Recorded], root: bytes) -> None:
        """The lines are on disk before the head counts them."""
        added = b"".join(_encode(one) for one in new)
        handle = os.open(self._lines, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, durable.FILE_MODE)
        try:
            durable.cut(handle, len(kept.lines))
            durable.append(handle, len(kept.lines), added)
        finally:
            os.close(handle)
        digest = Hasher()
        digest.update(kept.lines)
        digest.update(added)
        head = {
            "root": root.hex(),
            "sha256": digest.digest().hex(),
            "size": len(kept.lines) + len(added),
        }
        durable.write(self._head, json.dumps(head, sort_keys=True).encode())


def _verify_goes_on(reader: Client, kept: Kept) -> None:
    if _root_at(reader, kept.last_seq) != kept.root:
        raise RolledBack(
            f"{ONLINE_LOG} has another root at {kept.last_seq} than the one that was read before: "
            "the hub tells another history; stop it, and compare it with its archive"
        )


def _root_at(reader: Client, seq: int) -> bytes:
    """The root of the log behind an entry, as the hub has signed and proven it."""
    found = b""
    for pair in reader.read(ONLINE_LOG, from_seq=seq, to_seq=seq):
        found = pair.receipt.mmr_root
    return found


def _encode(one: Recorded) -> bytes:
    line = [one.seq, one.hub_ts, one.event.KIND, one.event.document()]
    return json.dumps(line, sort_keys=True).encode() + b"\n"


def _decode(line: bytes) -> Recorded:
    value: Any = json.loads(line)
    seq, hub_ts, kind, document = value
    event = RecordEvent(
        subject_id="",
        principal_id=_NOBODY,
        event_type=kind,
        event_time=0,
        origin="",
        payload=AnyItem(json_body.encode_value(document)),
    )
    return Recorded(seq, hub_ts, parse(event))
