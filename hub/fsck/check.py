"""What one check of a data directory works with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from hub.fsck.report import Findings
from hub.storage.datadir import DataDir
from hub.storage.relearn import Relearner
from veen.hub_identity import HubIdentity
from veen.limits import Limits
from veen.profile import Profile

Progress = Callable[[int, int], None]


@dataclass(slots=True, kw_only=True)
class Check:
    datadir: DataDir
    limits: Limits
    profiles: Mapping[bytes, Profile]
    hub: HubIdentity
    findings: Findings
    relearner: Relearner
    acknowledged: Mapping[bytes, int]
    """The last stream_seq of each label for which the index knows a receipt."""
    progress: Progress
    bound: Collection[tuple[bytes, int]]
    """The checkpoints that the binding manifest names."""
    total: int = 0
    done: int = 0
    control_is_whole: bool = True
    """Whether every capability that was ever made known could be read."""
    bindings: dict[tuple[bytes, int], tuple[bytes, ...]] = field(default_factory=dict)
    """The lines that the binding manifest may hold for each checkpoint."""

    def advance(self, size: int) -> None:
        self.done += size
        self.progress(self.done, self.total)

    def read(self, name: str) -> bytes | None:
        try:
            return self.datadir.file(name).read_bytes()
        except FileNotFoundError:
            return None

    def compare(self, name: str, due: bytes, code: str) -> None:
        """Report where a file first differs from the bytes that the log calls for."""
        found = self.read(name)
        if found is None:
            self.findings.fault(name, 0, None, "the file is missing", "MISSING")
        elif found != due:
            at = first_difference(found, due)
            self.findings.fault(name, at, None, "differs from what the log says", code)


def first_difference(found: bytes, due: bytes) -> int:
    """The first offset at which two byte strings differ; they must."""
    pairs = enumerate(zip(found, due, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(found), len(due)))
