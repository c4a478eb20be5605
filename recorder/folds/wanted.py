"""What someone wants folded, by the names that people use."""

from __future__ import annotations

from dataclasses import dataclass

from recorder.archive.store import HubArchive
from recorder.folds.job import FoldJob
from recorder.folds.log import NotArchived, NothingArchived
from veen.label import EpochLabels, routing_key
from veen.overlay.tree import BLOCK, Run
from veen.profile import DEFAULT_PROFILE, Profile
from veen.stream import stream_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    stream: str
    overlay: str
    profile: Profile = DEFAULT_PROFILE
    epoch: int = 0
    from_seq: int = 1
    to_seq: int | None = None
    """None for the end of what is archived."""
    block: int = BLOCK
    keeps_summaries: bool = False

    def label(self, hub_id: bytes) -> bytes:
        return EpochLabels(routing_key(hub_id), stream_id(self.stream), self.profile).at(self.epoch)

    def end_seq(self, archive: HubArchive) -> int:
        """The last stream_seq that is archived."""
        return self._end(archive)[1]

    def job(self, archive: HubArchive) -> FoldJob:
        """The order for it, in the archive as it is now."""
        manifest, end = self._end(archive)
        upto = end if self.to_seq is None else self.to_seq
        if upto > end or self.from_seq > upto:
            raise NotArchived(
                f"{self.stream} is archived from 1 to {end}: "
                f"nothing to fold from {self.from_seq} to {upto}"
            )
        return FoldJob(
            hub_id=archive.keys.hub_id,
            manifest=manifest,
            label=self.label(archive.keys.hub_id),
            overlay=self.overlay,
            run=Run(self.from_seq, upto),
            block=self.block,
            keeps_summaries=self.keeps_summaries,
        )

    def _end(self, archive: HubArchive) -> tuple[bytes, int]:
        manifest, found = archive.latest_with_hash()
        ref = found.ref(self.label(archive.keys.hub_id))
        if ref is None or not ref.end_seq:
            epoch = f" in epoch {self.epoch}" if self.profile.epoch_sec else ""
            raise NothingArchived(f"the archive holds nothing of stream {self.stream}{epoch}")
        return manifest, ref.end_seq
