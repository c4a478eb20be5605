"""Publishing a checkpoint: its file and its line in every index, whatever a crash left of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.identity import HubKeys
from hub.storage.index import Index, LabelRow
from hub.storage.label_log import Damaged, read_peaks, write_checkpoint
from veen import layout
from veen.checkpoint import Checkpoint
from veen.errors import Malformed
from veen.layout import CheckpointName


@dataclass(frozen=True, slots=True)
class Publisher:
    """The row of a checkpoint in the index of the hub comes last: what has one is published."""

    datadir: DataDir
    keys: HubKeys
    index: Index

    def publish(self, signed: Checkpoint) -> None:
        row = self._row(signed.label_curr)
        write_checkpoint(self.datadir, signed, self._start_seq(row, signed.upto_seq))
        identity.bind(self.datadir, self.keys, signed)
        self._record(row, signed.upto_seq)

    def unpublished(self, names: Iterable[str]) -> Iterator[CheckpointName]:
        """The checkpoints among the files of the log that have no row, in no order."""
        published = {layout.checkpoint(*one) for one in self.index.all_checkpoints()}
        for name in names:
            path = f"log/{name}"
            found = None if path in published else layout.parse_checkpoint(path)
            if found is not None:
                yield found

    def complete(self, names: Iterable[CheckpointName]) -> None:
        """Write what is missing around checkpoints whose files are there."""
        bound = identity.settle_bindings(self.datadir)
        for name in sorted(names):
            row, signed = self._row(name.label), self._read(name)
            write_checkpoint(self.datadir, signed, self._start_seq(row, name.upto_seq))
            if name not in bound:
                identity.bind(self.datadir, self.keys, signed)
            self._record(row, name.upto_seq)

    def _read(self, name: CheckpointName) -> Checkpoint:
        """A checkpoint that nothing vouches for yet: it must be of this hub and of this log."""
        file = layout.checkpoint(*name)
        try:
            found = Checkpoint.decode(self.datadir.file(file).read_bytes())
        except Malformed as error:
            raise Damaged(f"{file}: {error}: run `veen hub verify`") from error
        due = (*name, read_peaks(self.datadir, *name).root())
        is_own = any(found.is_signed_by(key.hub_pk) for key in self.keys.identity.hub_keys)
        if (found.label_curr, found.upto_seq, found.mmr_root) != due or not is_own:
            raise Damaged(f"{file} is not a checkpoint of this log: run `veen hub verify`")
        return found

    def _row(self, label: bytes) -> LabelRow:
        row = self.index.label(label)
        if row is None:
            raise Damaged(f"label {label.hex()} is not in the index: run `veen hub rebuild`")
        return row

    def _start_seq(self, row: LabelRow, upto_seq: int) -> int:
        chunk = self.index.chunk_of(row.label_no, upto_seq)
        return chunk.start_seq if chunk else row.chunk_start

    def _record(self, row: LabelRow, upto_seq: int) -> None:
        with self.index.transaction():
            self.index.add_checkpoint(row.label_no, upto_seq)
