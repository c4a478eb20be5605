"""Replay output as a directory of Parquet files, each written once and named after its position."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from recorder.replay.output import GROUP_ROWS, PART_ROWS, OutputExists
from recorder.replay.plan import ReplayPlan
from recorder.replay.records import Item, OutputCursor, Record, StreamAt
from veen.digest import h
from veen.errors import Malformed
from veen.events import is_import
from veen.system import durable

PART_BYTES: Final = 256 << 20
GROUP_BYTES: Final = 16 << 20
PLAN_FILE: Final = "replay.cbor"
_PART: Final = re.compile(r"part-([0-9]{8})\.parquet")
_AFTER: Final = b"veen.replay.after"
_PLAN_ID: Final = b"veen.replay.plan"

_TIME: Final = pa.timestamp("ms", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("subject_id", pa.string()),
        pa.field("principal_id", pa.binary(), nullable=False),
        pa.field("event_type", pa.string()),
        pa.field("event_time", _TIME),
        pa.field("origin", pa.string()),
        pa.field("payload", pa.string()),
        pa.field("hub_commit_seq", pa.int64(), nullable=False),
        pa.field("hub_commit_time", _TIME, nullable=False),
        pa.field("fault", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("receipt_id", pa.string(), nullable=False),
        pa.field("receipt", pa.binary(), nullable=False),
        pa.field("proven", pa.bool_(), nullable=False),
        pa.field("checkpoint_id", pa.binary()),
    ]
)


_SOURCE_FIELDS: Final = (
    pa.field("source_hub_id", pa.binary()),
    pa.field("source_stream", pa.string()),
    pa.field("source_commit_seq", pa.int64()),
    pa.field("source_commit_time", _TIME),
    pa.field("source_receipt_id", pa.string()),
    pa.field("import_time", _TIME),
    pa.field("bundle_id", pa.binary()),
)


def schema_of(plan: ReplayPlan) -> Any:
    """The columns of a replay; those of an origin only if an import stream is replayed."""
    if not any(map(is_import, plan.requested.streams)):
        return SCHEMA
    return pa.schema([*SCHEMA, *_SOURCE_FIELDS])


class ParquetSink:
    """Writes parts limited by rows and bytes; an incomplete part has a temporary name."""

    def __init__(
        self,
        folder: Path,
        cursor: OutputCursor,
        part_rows: int = PART_ROWS,
        group_rows: int = GROUP_ROWS,
    ) -> None:
        self._folder = folder
        self._plan = cursor.plan
        self._part_rows = part_rows
        self._group_rows = group_rows
        self._places = {stream: cursor.of(stream) for stream in cursor.plan.requested.streams}
        self._number = len(_parts(folder)) if folder.exists() else 0
        self._rows: list[dict[str, Any]] = []
        self._group_bytes = self._part_bytes = self._count = 0
        self._writer: Any = None
        durable.make_directory(folder)
        durable.write_once(folder / PLAN_FILE, cursor.plan.encode())

    def put(self, record: Record) -> None:
        if not isinstance(record, Item):
            return
        if self._count == self._part_rows or self._part_bytes >= PART_BYTES:
            self._end_part()
        row = _row(record, self._plan)
        size = len(record.msg.ciphertext)
        self._rows.append(row)
        self._count += 1
        self._group_bytes += size
        self._part_bytes += size
        self._places[record.stream] = StreamAt(
            next_seq=record.seq + 1, leaf=record.receipt.leaf_hash
        )
        if len(self._rows) == self._group_rows or self._group_bytes >= GROUP_BYTES:
            self._end_group()

    def close(self) -> None:
        if self._count:
            self._end_part()

    def abandon(self) -> None:
        """Delete the incomplete part; the next run writes it again."""
        with suppress(OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
            self._open_part.unlink(missing_ok=True)

    @property
    def _open_part(self) -> Path:
        return self._folder / f".part-{self._number:08d}.new"

    def _end_group(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._open_part, schema_of(self._plan), compression="zstd", version="2.6"
            )
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=schema_of(self._plan)))
        self._rows, self._group_bytes = [], 0

    def _end_part(self) -> None:
        self._end_group()
        after = _encode_places(self._places)
        self._writer.add_key_value_metadata({_PLAN_ID: h(self._plan.encode()).hex(), _AFTER: after})
        self._writer.close()
        handle = os.open(self._open_part, os.O_RDONLY)
        try:
            durable.sync(handle)
        finally:
            os.close(handle)
        durable.rename(self._open_part, self._folder / f"part-{self._number:08d}.parquet")
        self._number += 1
        self._writer = None
        self._count = self._part_bytes = 0


def plan_in(folder: Path) -> ReplayPlan | None:
    """The plan of the replay in a directory; None if it is empty."""
    try:
        return ReplayPlan.decode((folder / PLAN_FILE).read_bytes())
    except FileNotFoundError:
        if folder.exists() and any(path.suffix != ".new" for path in folder.iterdir()):
            raise OutputExists(
                f"{folder}: expected an empty directory or a replay; choose another"
            ) from None
        return None


def cursor_in(folder: Path, plan: ReplayPlan) -> OutputCursor:
    """How far the parts go; each must be present and end where its metadata says."""
    rows, cursor = 0, OutputCursor(plan)
    for path in _parts(folder):
        metadata = pq.read_metadata(path)
        rows += metadata.num_rows
        cursor = OutputCursor(plan, _places(path, plan, dict(metadata.metadata or {})))
        if cursor.done != rows:
            raise Malformed(f"{path}: expected {cursor.done} items up to here, got {rows}")
    return cursor


def _parts(folder: Path) -> list[Path]:
    """The parts in order; Malformed if one is missing."""
    parts = sorted(path for path in folder.iterdir() if _PART.fullmatch(path.name))
    for number, path in enumerate(parts):
        if path.name != f"part-{number:08d}.parquet":
            raise Malformed(f"{folder}: part {number} is missing before {path.name}")
    return parts


def _places(path: Path, plan: ReplayPlan, fields: dict[bytes, bytes]) -> dict[str, StreamAt]:
    if fields.get(_PLAN_ID) != h(plan.encode()).hex().encode():
        raise Malformed(f"{path} belongs to another replay")
    try:
        document = json.loads(fields[_AFTER])
        places = {
            stream: StreamAt(next_seq=int(seq), leaf=bytes.fromhex(leaf))
            for stream, (seq, leaf) in document.items()
        }
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"{path}: the metadata of its end cannot be read: {error!r}") from error
    if tuple(sorted(places)) != plan.requested.streams:
        raise Malformed(f"{path} belongs to a replay of other streams")
    return places


def _encode_places(places: dict[str, StreamAt]) -> str:
    document = {stream: [place.next_seq, place.leaf.hex()] for stream, place in places.items()}
    return json.dumps(document, sort_keys=True)


def _row(item: Item, plan: ReplayPlan) -> dict[str, Any]:
    event, fault = item.event, item.fault
    return {
        "kind": item.kind.value,
        "stream": item.stream,
        "subject_id": event.subject_id if event else None,
        "principal_id": event.principal_id if event else item.msg.client_id,
        "event_type": event.event_type if event else None,
        "event_time": event.event_time if event else None,
        "origin": event.origin if event else None,
        "payload": _payload(event.value()) if event else None,
        "hub_commit_seq": item.seq,
        "hub_commit_time": item.receipt.hub_ts * 1000,
        "fault": fault.fault.name if fault else None,
        "detail": str(fault) if fault else None,
        "receipt_id": item.receipt_id,
        "receipt": item.receipt.encode(),
        "proven": item.proven,
        "checkpoint_id": plan.checkpoint_id if item.proven else None,
        **_source(item),
    }


def _source(item: Item) -> dict[str, Any]:
    imported = item.imported
    if imported is None:
        return {}
    receipt = imported.receipt()
    return {
        "source_hub_id": imported.source_hub_id,
        "source_stream": imported.origin_stream,
        "source_commit_seq": receipt.stream_seq,
        "source_commit_time": receipt.hub_ts * 1000,
        "source_receipt_id": f"rcpt-{receipt.leaf_hash.hex()}",
        "import_time": imported.import_time * 1000,
        "bundle_id": imported.bundle_id,
    }


def _payload(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
