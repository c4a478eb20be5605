"""Sealed chunks: their summaries, and whether they were cut where the limits say (4.8.2)."""

from __future__ import annotations

from hub.fsck.check import Check
from hub.fsck.frames import Bad, Good
from veen import layout
from veen.chunk import ChunkSummary, Tally
from veen.errors import Malformed
from veen.layout import ChunkName
from veen.mmr import Peaks


class SealCheck:
    def __init__(self, check: Check) -> None:
        self._check = check
        self._rolled: Tally | None = None

    def sealed(self, name: ChunkName, tally: Tally | None, peaks: Peaks | None) -> None:
        """Check the summary of a chunk; ``tally`` is None when the chunk has a fault itself."""
        self._rolled = tally
        if tally is not None and peaks is not None:
            due = tally.summary(name.label, peaks.root()).encode()
            self._check.compare(layout.summary(name), due, "SUMMARY")
        else:
            self._check_alone(name, peaks)

    def follow(self, name: str, frames: list[Good | Bad]) -> None:
        """Tell of a chunk before this one that the limits of today would have cut elsewhere."""
        before, limits = self._rolled, self._check.limits
        self._rolled = None
        if before is None or not frames or not isinstance(frames[0], Good):
            return
        if not before.must_roll(frames[0].framed.header.whole_size, limits):
            self._check.findings.note(f"{name}: the chunk before it was sealed early")
        if before.entries > limits.max_checkpoint_interval or before.size > limits.max_chunk_bytes:
            self._check.findings.note(f"{name}: the chunk before it is larger than allowed now")

    def _check_alone(self, name: ChunkName, peaks: Peaks | None) -> None:
        """What a summary must say whatever became of the entries of its chunk."""
        file, findings = layout.summary(name), self._check.findings
        raw = self._check.read(file)
        if raw is None:
            findings.fault(file, 0, None, "the file is missing", "MISSING")
            return
        try:
            found = ChunkSummary.decode(raw)
        except Malformed as error:
            findings.fault(file, 0, None, str(error), "SUMMARY")
            return
        root = peaks.root() if peaks else found.mmr_root_end
        said = (found.label, found.start_seq, found.end_seq, found.mmr_root_end)
        if said != (*name, root):
            findings.fault(file, 0, None, "differs from what the log says", "SUMMARY")
