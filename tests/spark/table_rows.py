"""The rows of a table of events, and those that must be there by what was sent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.event_manifest import EventTable
from veen.chunk import read_entries
from veen.control import control_label
from veen.limits import Limits


def rows_of(table: EventTable) -> list[dict[str, Any]]:
    """All rows of the committed files, each checked against its place and its manifest."""
    rows: list[dict[str, Any]] = []
    for file in table.files():
        raw = table.store.objects.get(file.key, expect=file.sha256)
        found = pq.read_table(pa.BufferReader(raw)).to_pylist()
        days = {datetime.fromtimestamp(one["hub_ts"], UTC).strftime("%Y-%m-%d") for one in found}
        assert days == {file.day}
        assert f"/stream={found[0]['stream_id'].hex()}/day={file.day}/" in file.key
        assert len(found) == file.rows
        rows += found
    return rows


def due(sealed_hub: Any) -> list[tuple[Any, ...]]:
    """What must be in the table: every sealed entry of the directory, by what was sent."""
    found, control = [], control_label(sealed_hub.archived.hub_id).hex()
    for path in (sealed_hub.archived.root / "log").glob("*.log"):
        if control in path.name:
            continue
        for _, header, entry in read_entries(path.read_bytes(), Limits()):
            msg_id = entry.msg().leaf_hash()
            found.append((header.label, header.stream_seq, msg_id, *sealed_hub.sent[msg_id]))
    return sorted(found, key=lambda one: one[:2])


def said(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("label", "stream_seq", "msg_id", "stream_name", "hub_ts", "client_id", "body",
             "parent_id", "expires_at")  # fmt: skip
    return sorted((tuple(row[name] for name in names) for row in rows), key=lambda one: one[:2])
