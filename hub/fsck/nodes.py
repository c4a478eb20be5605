"""The node file of one label, compared with the nodes of its log as they are computed again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hub.storage.logged import Logged
from veen import mmr
from veen.mmr import Peaks
from veen.nodes import NodeFile


class NodeCheck:
    """Whether a node file agrees with every run of entries that it is shown."""

    def __init__(self, path: Path) -> None:
        self.name = f"derived/{path.name}"
        self._file = NodeFile.for_reading(path) if path.is_file() else None
        self.agrees = self._file is not None

    def follow(self, peaks: Peaks, entries: Sequence[Logged]) -> None:
        """Compare the nodes of entries that come one after another from ``peaks`` on."""
        if self._file is None or not entries:
            return
        at, due = mmr.position(0, peaks.size), []
        for one in entries:
            peaks, completed = mmr.grow(peaks, one.leaf_hash)
            due += completed
        self.agrees = self.agrees and self._file.read(at, len(due)) == b"".join(due)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def node_hint(path: Path, size: int) -> Peaks | None:
    """The peaks at a size as a node file has them: a guess, for a signed root to confirm."""
    if not path.is_file():
        return None
    with NodeFile.for_reading(path) as nodes:
        try:
            return mmr.peaks_at(nodes, size)
        except LookupError:
            return None
