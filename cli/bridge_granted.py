"""What a hub was told of capabilities and streams: its control log, read from its directory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.label_log import Found, whole_entries
from veen import layout
from veen.audit.stock import take_stock
from veen.captoken import CapToken
from veen.control import STREAM, ControlRecord, control_label
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.layout import ChunkName, OpenChunkName
from veen.limits import Limits
from veen.mmr import EMPTY, Peaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Every capability that was ever authorized; ``entries`` and ``root`` say which log told it."""

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
        raise Untrusted(f"{data} is of hub {hub.hub_id.hex()}, not of {hub_id.hex()}")
    peaks: Peaks = EMPTY
    records = []
    for found in _entries(datadir, control_label(hub_id)):
        msg, receipt = found.entry.msg(), found.entry.receipt()
        peaks = peaks.append(msg.leaf_hash())
        if (receipt.leaf_hash, receipt.mmr_root) != (msg.leaf_hash(), peaks.root()):
            raise Untrusted(f"{data}: entry {peaks.size} of the control log is not what was signed")
        hub.verify_receipt(receipt)
        _verify_own(hub, msg.client_id, receipt.hub_ts)
        records.append(ControlRecord.of(msg))
    tokens = [one.token() for one in records]
    named = [one.streams()[0].name for one in records if one.kind == STREAM]
    return Granted(
        entries=peaks.size,
        root=peaks.root() if peaks.size else bytes(32),
        tokens=tuple(one for one in tokens if one is not None),
        streams=tuple(named),
    )


def _verify_own(hub: HubIdentity, client_id: bytes, hub_ts: int) -> None:
    if client_id not in {one.hub_pk for one in hub.hub_keys if one.overlaps(hub_ts, hub_ts)}:
        raise Untrusted(f"an entry of the control log by {client_id.hex()}, who is not the hub")


def _entries(datadir: DataDir, label: bytes) -> Iterator[Found]:
    stock = take_stock(f"log/{one.name}" for one in datadir.log.iterdir()).of(label)
    reached = 0
    for segment in stock.segments():
        if segment.start_seq <= reached:
            # A chunk that was sealed and has not lost its open name yet.
            continue
        if segment.start_seq != reached + 1:
            raise Untrusted(f"{datadir.root}: the control log lacks {reached + 1} and what follows")
        for one in _of_segment(datadir, segment):
            reached = one.header.stream_seq
            yield one
        if isinstance(segment, ChunkName) and reached != segment.end_seq:
            raise Untrusted(f"{datadir.root}: the control log is damaged at {reached + 1}")


def _of_segment(datadir: DataDir, segment: ChunkName | OpenChunkName) -> Iterator[Found]:
    is_sealed = isinstance(segment, ChunkName)
    name = layout.chunk(segment) if isinstance(segment, ChunkName) else layout.open_chunk(segment)
    try:
        raw = datadir.file(name).read_bytes()
    except FileNotFoundError as error:
        told = "was sealed meanwhile; run it again" if not is_sealed else "is missing"
        raise Untrusted(f"{datadir.root}: {name} {told}") from error
    return whole_entries(raw, segment.label, segment.start_seq, Limits())
