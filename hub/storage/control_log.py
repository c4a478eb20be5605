"""The capabilities and streams of a hub, read from its control log and verified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.label_log import LocatedEntry, whole_entries
from veen.audit.context import take_inventory
from veen.captoken import CapToken
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.limits import Limits
from veen.log import layout
from veen.log.entry import STREAM, ControlRecord, control_label
from veen.log.layout import ChunkName, OpenChunkName
from veen.mmr import EMPTY, Peaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Every capability that was ever authorized, from a log of ``entries`` with ``root``."""

    entries: int
    root: bytes
    tokens: tuple[CapToken, ...]
    streams: tuple[str, ...]


def read_granted(data: Path, hub_id: bytes) -> Granted:
    """The control log of a hub, whole and as the hub has signed it, or Untrusted.

    ``data`` is the hub's directory or a copy of it; the hub may be running.
    """
    datadir = DataDir(data.absolute())
    hub = identity.read_identity(datadir)
    if hub.hub_id != hub_id:
        raise Untrusted(f"{data}: expected hub {hub_id.hex()}, got hub {hub.hub_id.hex()}")
    peaks: Peaks = EMPTY
    records = []
    for entry in _entries(datadir, control_label(hub_id)):
        msg, receipt = entry.entry.msg(), entry.entry.receipt()
        peaks = peaks.append(msg.leaf_hash())
        if (receipt.leaf_hash, receipt.mmr_root) != (msg.leaf_hash(), peaks.root()):
            raise Untrusted(
                f"{data}: entry {peaks.size} of the control log does not match its signed root"
            )
        hub.verify_receipt(receipt)
        _verify_own(hub, msg.client_id, receipt.hub_ts)
        records.append(ControlRecord.of(msg))
    tokens = [record.token() for record in records]
    named = [record.streams()[0].name for record in records if record.kind == STREAM]
    return Granted(
        entries=peaks.size,
        root=peaks.root() if peaks.size else bytes(32),
        tokens=tuple(token for token in tokens if token is not None),
        streams=tuple(named),
    )


def _verify_own(hub: HubIdentity, client_id: bytes, hub_ts: int) -> None:
    if client_id not in {
        hub_key.hub_pk for hub_key in hub.hub_keys if hub_key.overlaps(hub_ts, hub_ts)
    }:
        raise Untrusted(
            f"control log: expected entries of the hub, got one of client {client_id.hex()}"
        )


def _entries(datadir: DataDir, label: bytes) -> Iterator[LocatedEntry]:
    inventory = take_inventory(f"log/{path.name}" for path in datadir.log.iterdir()).of(label)
    reached = 0
    for segment in inventory.segments():
        if segment.start_seq <= reached:
            # A sealed chunk that is not renamed yet.
            continue
        if segment.start_seq != reached + 1:
            raise Untrusted(f"{datadir.root}: the control log lacks {reached + 1} and what follows")
        for item in _of_segment(datadir, segment):
            reached = item.header.stream_seq
            yield item
        if isinstance(segment, ChunkName) and reached != segment.end_seq:
            raise Untrusted(f"{datadir.root}: the control log is damaged at {reached + 1}")


def _of_segment(datadir: DataDir, segment: ChunkName | OpenChunkName) -> Iterator[LocatedEntry]:
    is_sealed = isinstance(segment, ChunkName)
    name = layout.chunk(segment) if isinstance(segment, ChunkName) else layout.open_chunk(segment)
    try:
        raw = datadir.file(name).read_bytes()
    except FileNotFoundError as error:
        detail = "was sealed meanwhile; run it again" if not is_sealed else "is missing"
        raise Untrusted(f"{datadir.root}: {name} {detail}") from error
    return whole_entries(raw, segment.label, segment.start_seq, Limits())
