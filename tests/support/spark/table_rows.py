"""The rows of a table of events, and those that must be there by what was sent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from spark_jobs.event_files import EventTable
from veen.limits import Limits
from veen.log.chunk import read_entries
from veen.log.entry import control_label


def rows_of(table: EventTable) -> list[dict[str, Any]]:
    """All rows of the committed files, each checked against its place and its manifest."""
    rows: list[dict[str, Any]] = []
    for file in table.files():
        raw = table.store.objects.get(file.key, expect=file.sha256)
        result = pq.read_table(pa.BufferReader(raw)).to_pylist()
        days = {datetime.fromtimestamp(item["hub_ts"], UTC).strftime("%Y-%m-%d") for item in result}
        assert days == {file.day}
        assert f"/stream={result[0]['stream_id'].hex()}/day={file.day}/" in file.key
        assert len(result) == file.rows
        rows += result
    return rows


def due(sealed_hub: Any) -> list[tuple[Any, ...]]:
    """What must be in the table: every sealed entry of the directory, by what was sent."""
    result, control = [], control_label(sealed_hub.archived.hub_id).hex()
    for path in (sealed_hub.archived.root / "log").glob("*.log"):
        if control in path.name:
            continue
        for _, header, entry in read_entries(path.read_bytes(), Limits()):
            msg_id = entry.msg().leaf_hash()
            result.append((header.label, header.stream_seq, msg_id, *sealed_hub.sent[msg_id]))
    return sorted(result, key=lambda item: item[:2])


def read_rows(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = ("label", "stream_seq", "msg_id", "stream_name", "hub_ts", "client_id", "body",
             "parent_id", "expires_at")  # fmt: skip
    return sorted((tuple(row[name] for name in names) for row in rows), key=lambda item: item[:2])
