"""The node file of one label, compared with the nodes of its log as they are computed again."""

from __future__ import annotations

from hub.fsck.check import Check
from hub.storage.nodes import NODE_BYTES, NodeFile
from veen import mmr
from veen.mmr import Peaks


class NodeCheck:
    def __init__(self, check: Check, label: bytes) -> None:
        self._check = check
        path = check.datadir.nodes(label)
        self._name = f"derived/{path.name}"
        self._file = NodeFile.for_reading(path) if path.is_file() else None
        self._at = 0
        self._pending: list[bytes] = []
        self._agrees = self._file is not None

    def follow(self, before: Peaks, leaf: bytes) -> Peaks:
        """The peaks after one more leaf; its nodes are remembered for ``settle``."""
        after, completed = mmr.grow(before, leaf)
        if not self._pending:
            self._at = mmr.position(0, before.size)
        self._pending.extend(completed)
        return after

    def settle(self) -> None:
        """Compare what was followed without a gap since the last time."""
        due = b"".join(self._pending)
        self._pending.clear()
        if self._file and self._file.read(self._at, len(due) // NODE_BYTES) != due:
            self._agrees = False

    def hint(self, size: int) -> Peaks | None:
        """The peaks at a size as the file has them: a guess, for a signed root to confirm."""
        if self._file is None:
            return None
        try:
            return mmr.peaks_at(self._file, size)
        except LookupError:
            return None

    def finish(self) -> None:
        self.settle()
        if not self._agrees:
            self._check.findings.stale(f"{self._name} is missing or differs from the log")
        if self._file:
            self._file.close()
