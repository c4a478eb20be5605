"""What an archive holds of a hub, told from its manifests."""

from __future__ import annotations

from dataclasses import dataclass

from recorder.archive.escrow import Escrow
from recorder.archive.store import HubArchive


@dataclass(frozen=True, slots=True)
class LabelStatus:
    label: bytes
    end_seq: int
    sealed_seq: int
    last_ts: int
    stored_bytes: int
    root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HubStatus:
    """``is_escrowed`` is None without an escrow, and tells else whether it has the current key."""

    hub_id: bytes
    manifest: bytes
    key_id: bytes
    labels: tuple[LabelStatus, ...]
    is_escrowed: bool | None
    unsettled_from: int | None
    recorder_checkpoints: int
    recorder_bytes: int

    @property
    def entries(self) -> int:
        return sum(one.end_seq for one in self.labels)

    @property
    def stored_bytes(self) -> int:
        return sum(one.stored_bytes for one in self.labels) + self.recorder_bytes

    @property
    def last_ts(self) -> int:
        return max((one.last_ts for one in self.labels), default=0)


def status(archive: HubArchive) -> HubStatus:
    sha256, manifest = archive.latest_with_hash()
    current = archive.identity(manifest).current.key_id
    escrow = archive.document(manifest.escrow, Escrow) if manifest.escrow else None
    recorder = archive.recorder(manifest)
    labels = (
        LabelStatus(one.label, one.end_seq, one.sealed_seq, one.last_ts, one.stored_bytes, one.root)
        for one in archive.labels(manifest)
    )
    return HubStatus(
        hub_id=manifest.hub_id,
        manifest=sha256,
        key_id=current,
        labels=tuple(labels),
        is_escrowed=None if escrow is None else current in escrow.key_ids,
        unsettled_from=manifest.unsettled_from,
        recorder_checkpoints=len(recorder.pieces),
        recorder_bytes=recorder.stored_bytes,
    )
