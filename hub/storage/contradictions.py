"""Signed checkpoints that contradict their log: they are moved to the evidence and signed again.

A hub with a wrong node file may have signed a checkpoint whose root differs from that of its own
receipts. The receipts count. The wrong checkpoint may be in somebody's hands, so it is never
deleted: it goes to ``evidence/`` with everything that repeats it, and a new one is signed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from hub.storage import identity
from hub.storage.checkpoint_index import read_index, write_index
from hub.storage.datadir import DataDir
from hub.storage.label_log import Damaged
from veen.audit.context import LabelStock
from veen.checkpoint import Checkpoint
from veen.digest import h
from veen.errors import Malformed
from veen.label import derive_label, routing_key
from veen.log import layout
from veen.log.chunk import CheckpointRef, PeakSnapshot
from veen.log.layout import CheckpointFileName
from veen.mmr import Peaks
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable

_PREFIX: Final = "contradicting-"


class Contradicted(NamedTuple):
    """A size at which a checkpoint or a snapshot differs from ``peaks``, those of the log."""

    label: bytes
    upto_seq: int
    peaks: Peaks
    checkpoint: bool


@dataclass(slots=True)
class ArtefactCheck:
    """Compares the checkpoints and snapshots of a label with the peaks of its log, in order."""

    datadir: DataDir
    files: LabelStock
    contradicted: list[Contradicted] = field(default_factory=list)
    refs: dict[int, CheckpointRef] = field(default_factory=dict)
    """The lines that the checkpoint index must have, by the log."""

    def at(self, peaks: Peaks, receipt_root: bytes | None, chunk_start: int) -> None:
        size = peaks.size
        is_signed = size in self.files.checkpoints
        if not is_signed and size not in self.files.peaks:
            return
        if receipt_root is not None and receipt_root != peaks.root():
            raise Damaged(
                f"the log of label {self.files.label.hex()} has another root at {size} than "
                "its receipt: run `veen hub verify`; nothing was rebuilt"
            )
        if is_signed:
            self.refs[size] = CheckpointRef(
                mmr_root=peaks.root(),
                start_seq=chunk_start,
                end_seq=size,
                peaks_ref=layout.peaks(self.files.label, size),
            )
        wrong = is_signed and self._checkpoint(size).mmr_root != peaks.root()
        if wrong or self._has_other_snapshot(peaks):
            self.contradicted.append(Contradicted(self.files.label, size, peaks, wrong))

    def _checkpoint(self, upto_seq: int) -> Checkpoint:
        file = layout.checkpoint(self.files.label, upto_seq)
        try:
            return Checkpoint.decode(self.datadir.file(file).read_bytes())
        except Malformed as error:
            raise Damaged(f"{file}: {error}: run `veen hub verify`") from error

    def _has_other_snapshot(self, peaks: Peaks) -> bool:
        if peaks.size not in self.files.peaks:
            return False
        raw = self.datadir.file(layout.peaks(self.files.label, peaks.size)).read_bytes()
        return raw != PeakSnapshot.of(self.files.label, peaks).encode()


def set_aside(datadir: DataDir, contradictions: Iterable[Contradicted], hub_id: bytes) -> list[str]:
    """Move contradicting artefacts to the evidence; what was moved and why.

    Each checkpoint is moved after everything that repeats it, so a crash is recoverable.
    """
    moved: list[str] = []
    wrong = {
        (contradicted.label, contradicted.upto_seq): contradicted for contradicted in contradictions
    }
    signed = {place for place, contradicted in wrong.items() if contradicted.checkpoint}
    for contradicted in wrong.values():
        _replace_snapshot(datadir, contradicted)
    if signed:
        _drop_index_lines(datadir, signed)
        _drop_bindings(datadir, signed)
        moved += _drop_documents(datadir, wrong, hub_id)
    for place in sorted(signed):
        file = layout.checkpoint(*place)
        raw = datadir.file(file).read_bytes()
        stored = _store_evidence(datadir, file, raw)
        datadir.file(file).unlink()
        moved.append(
            f"{file} had root {Checkpoint.decode(raw).mmr_root.hex()}, expected "
            f"{wrong[place].peaks.root().hex()} as in the receipt: stored as evidence/{stored}"
        )
    durable.sync_directory(datadir.log)
    return moved


def set_aside_index(datadir: DataDir, label: bytes) -> str:
    """Move a damaged checkpoint index to the evidence; the next start writes its lines again."""
    file = layout.checkpoint_index(label)
    stored = _store_evidence(datadir, file, datadir.file(file).read_bytes())
    datadir.file(layout.late_checkpoints(label)).unlink(missing_ok=True)
    datadir.file(file).unlink()
    durable.sync_directory(datadir.log)
    return f"{file} is damaged: stored as evidence/{stored}, its lines are written again"


def unsigned_places(datadir: DataDir) -> list[CheckpointFileName]:
    """The places whose checkpoint was set aside and has not been signed again."""
    places = {place for _, place in stored_checkpoints(datadir)}
    return sorted(place for place in places if not datadir.file(layout.checkpoint(*place)).exists())


def stored_checkpoints(datadir: DataDir) -> Iterator[tuple[str, CheckpointFileName]]:
    """The contradicting checkpoints among the evidence, with their label and upto_seq."""
    if not datadir.evidence.is_dir():
        return
    for path in sorted(datadir.evidence.glob(f"{_PREFIX}checkpoint-*.cbor")):
        name, _, _ = path.name.removeprefix(_PREFIX).rpartition(".cbor")[0].rpartition("-")
        place = layout.parse_checkpoint(f"log/{name}.cbor")
        if place is not None:
            yield path.name, place


def _store_evidence(datadir: DataDir, file: str, raw: bytes) -> str:
    """Store a copy among the evidence; its name has the place and the hash of the content."""
    path = Path(file)
    name = f"{_PREFIX}{path.stem}-{h(raw)[:8].hex()}{path.suffix}"
    durable.make_directory(datadir.evidence)
    durable.write_once(datadir.evidence / name, raw)
    return name


def _replace_snapshot(datadir: DataDir, contradicted: Contradicted) -> None:
    file = layout.peaks(contradicted.label, contradicted.upto_seq)
    expected = PeakSnapshot.of(contradicted.label, contradicted.peaks).encode()
    try:
        raw = datadir.file(file).read_bytes()
    except FileNotFoundError:
        raw = expected
    if raw != expected:
        _store_evidence(datadir, file, raw)
        durable.write(datadir.file(file), expected)


def _drop_index_lines(datadir: DataDir, places: set[tuple[bytes, int]]) -> None:
    for label in sorted({place[0] for place in places}):
        index = read_index(datadir, label)
        remaining = {upto: ref for upto, ref in index.items() if (label, upto) not in places}
        if remaining != index:
            write_index(datadir, label, remaining)


def _drop_bindings(datadir: DataDir, places: set[tuple[bytes, int]]) -> None:
    lines = identity.read_bindings(datadir)
    remaining = [line for line in lines if (line.label, line.upto_seq) not in places]
    if len(remaining) != len(lines):
        path = datadir.file(layout.CHECKPOINT_BINDING)
        _store_evidence(datadir, layout.CHECKPOINT_BINDING, path.read_bytes())
        durable.write(path, b"".join(line.encode() for line in remaining))


def _drop_documents(
    datadir: DataDir, wrong: dict[tuple[bytes, int], Contradicted], hub_id: bytes
) -> Iterator[str]:
    """Recorder checkpoints that repeat a wrong root."""
    routing = routing_key(hub_id)
    for file in sorted(datadir.recorder_names()):
        if layout.parse_recorder_checkpoint(file) is None:
            continue
        raw = datadir.file(file).read_bytes()
        for end in RecorderCheckpoint.decode(raw).ends:
            contradicted = wrong.get((derive_label(routing, end.stream_id, 0), end.last_seq))
            if contradicted is not None and end.mmr_root != contradicted.peaks.root():
                stored = _store_evidence(datadir, file, raw)
                datadir.file(file).unlink()
                durable.sync_directory(datadir.recorder)
                yield f"{file} repeats the root at {end.last_seq}: stored as evidence/{stored}"
                break
