"""Signed checkpoints that contradict the log they stand in: found, set aside and signed again.

A hub whose node file was wrong may have signed a checkpoint with a root that its own receipts deny.
The receipts stand. The wrong checkpoint may be in somebody's hands, so it is never thrown away: it
goes to ``evidence/`` with everything that repeats it, and the next one is signed in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.label_log import Damaged, read_checkpoint_index
from veen.audit.context import LabelStock
from veen.checkpoint import Checkpoint
from veen.digest import h
from veen.errors import Malformed
from veen.label import derive_label, routing_key
from veen.log import layout
from veen.log.chunk import PeakSnapshot, encode_checkpoint_index
from veen.log.layout import CheckpointFileName
from veen.mmr import Peaks
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable

_PREFIX: Final = "contradicting-"


class Contradicted(NamedTuple):
    """A place where a checkpoint or a snapshot is not that of the log; ``peaks`` are."""

    label: bytes
    upto_seq: int
    peaks: Peaks
    checkpoint: bool


@dataclass(slots=True)
class ArtefactCheck:
    """Is shown the peaks of one label in order, and holds what lies beside the log against them."""

    datadir: DataDir
    files: LabelStock
    found: list[Contradicted] = field(default_factory=list)

    def at(self, peaks: Peaks, receipt_root: bytes | None) -> None:
        size = peaks.size
        is_signed = size in self.files.checkpoints
        if not is_signed and size not in self.files.peaks:
            return
        if receipt_root is not None and receipt_root != peaks.root():
            raise Damaged(
                f"the log of label {self.files.label.hex()} leads to another root at {size} than "
                "the receipt there: run `veen hub verify`; nothing was rebuilt"
            )
        wrong = is_signed and self._checkpoint(size).mmr_root != peaks.root()
        if wrong or self._has_other_snapshot(peaks):
            self.found.append(Contradicted(self.files.label, size, peaks, wrong))

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


def set_aside(datadir: DataDir, contradicteds: Iterable[Contradicted], hub_id: bytes) -> list[str]:
    """Move contradicted artefacts to the evidence; what was moved and why.

    Each checkpoint goes last of all that repeats it, so after a crash the same is done again.
    """
    detail: list[str] = []
    wrong = {
        (contradicted.label, contradicted.upto_seq): contradicted for contradicted in contradicteds
    }
    signed = {place for place, item in wrong.items() if item.checkpoint}
    for item in wrong.values():
        _replace_snapshot(datadir, item)
    if signed:
        _drop_index_lines(datadir, signed)
        _drop_bindings(datadir, signed)
        detail += _drop_documents(datadir, wrong, hub_id)
    for place in sorted(signed):
        file = layout.checkpoint(*place)
        raw = datadir.file(file).read_bytes()
        stored = _keep(datadir, file, raw)
        datadir.file(file).unlink()
        detail.append(
            f"{file} had root {Checkpoint.decode(raw).mmr_root.hex()}, expected "
            f"{wrong[place].peaks.root().hex()} as in the receipt: kept as evidence/{stored}"
        )
    durable.sync_directory(datadir.log)
    return detail


def unsigned_places(datadir: DataDir) -> list[CheckpointFileName]:
    """Places whose checkpoint was set aside and has not been signed again."""
    result = {place for _, place in stored_checkpoints(datadir)}
    return sorted(item for item in result if not datadir.file(layout.checkpoint(*item)).exists())


def stored_checkpoints(datadir: DataDir) -> Iterator[tuple[str, CheckpointFileName]]:
    """The contradicting checkpoints among the evidence, each with the place it speaks of."""
    if not datadir.evidence.is_dir():
        return
    for path in sorted(datadir.evidence.glob(f"{_PREFIX}checkpoint-*.cbor")):
        name, _, _ = path.name.removeprefix(_PREFIX).rpartition(".cbor")[0].rpartition("-")
        place = layout.parse_checkpoint(f"log/{name}.cbor")
        if place is not None:
            yield path.name, place


def _keep(datadir: DataDir, file: str, raw: bytes) -> str:
    """A copy among the evidence, named by its place and its content."""
    path = Path(file)
    name = f"{_PREFIX}{path.stem}-{h(raw)[:8].hex()}{path.suffix}"
    durable.make_directory(datadir.evidence)
    durable.write_once(datadir.evidence / name, raw)
    return name


def _replace_snapshot(datadir: DataDir, contradicted: Contradicted) -> None:
    file = layout.peaks(contradicted.label, contradicted.upto_seq)
    due = PeakSnapshot.of(contradicted.label, contradicted.peaks).encode()
    try:
        raw = datadir.file(file).read_bytes()
    except FileNotFoundError:
        raw = due
    if raw != due:
        _keep(datadir, file, raw)
        durable.write(datadir.file(file), due)


def _drop_index_lines(datadir: DataDir, places: set[tuple[bytes, int]]) -> None:
    for of in sorted({place[0] for place in places}):
        index = read_checkpoint_index(datadir, of)
        left = {upto: ref for upto, ref in index.items() if (of, upto) not in places}
        if left != index:
            path = datadir.file(layout.checkpoint_index(of))
            durable.write(path, encode_checkpoint_index(left))


def _drop_bindings(datadir: DataDir, places: set[tuple[bytes, int]]) -> None:
    lines = identity.read_bindings(datadir)
    left = [line for line in lines if (line.label, line.upto_seq) not in places]
    if len(left) != len(lines):
        path = datadir.file(layout.CHECKPOINT_BINDING)
        _keep(datadir, layout.CHECKPOINT_BINDING, path.read_bytes())
        durable.write(path, b"".join(item.encode() for item in left))


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
            value = wrong.get((derive_label(routing, end.stream_id, 0), end.last_seq))
            if value is not None and end.mmr_root != value.peaks.root():
                stored = _keep(datadir, file, raw)
                datadir.file(file).unlink()
                durable.sync_directory(datadir.recorder)
                yield f"{file} repeats the root at {end.last_seq}: kept as evidence/{stored}"
                break
