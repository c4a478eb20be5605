"""What a check of a data directory found: faults of the log, notes, and stale derived state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from veen import canonical_json


@dataclass(frozen=True, slots=True)
class Fault:
    """One place where the log is not what its hub signed, and the rule that it breaks."""

    file: str
    offset: int
    stream_seq: int | None
    what: str
    code: str


class Head(NamedTuple):
    """Where a label ends; ``root`` is None when a fault leaves it unknown."""

    head_seq: int
    root: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    labels: int
    chunks: int
    entries: int
    checkpoints: int
    heads: dict[bytes, Head]
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    derived: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the log is whole. Derived state is not part of it: it can be rebuilt."""
        return not self.faults

    def to_json(self) -> bytes:
        return canonical_json.encode(
            {
                "ok": self.ok,
                "labels": self.labels,
                "chunks": self.chunks,
                "entries": self.entries,
                "checkpoints": self.checkpoints,
                "heads": {label.hex(): _head(head) for label, head in self.heads.items()},
                "faults": [_fault(fault) for fault in self.faults],
                "notes": list(self.notes),
                "derived": list(self.derived),
            }
        )


@dataclass(slots=True)
class Findings:
    """What has been found so far."""

    chunks: int = 0
    entries: int = 0
    checkpoints: int = 0
    heads: dict[bytes, Head] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)

    def fault(self, file: str, offset: int, seq: int | None, what: str, code: str) -> None:
        self.faults.append(Fault(file, offset, seq, what, code))

    def note(self, what: str) -> None:
        self.notes.append(what)

    def stale(self, what: str) -> None:
        self.derived.append(f"derived: {what}: run `veen hub rebuild`")

    def report(self) -> Report:
        return Report(
            labels=len(self.heads),
            chunks=self.chunks,
            entries=self.entries,
            checkpoints=self.checkpoints,
            heads=dict(sorted(self.heads.items())),
            faults=tuple(self.faults),
            notes=tuple(self.notes),
            derived=tuple(self.derived),
        )


def _head(head: Head) -> dict[str, object]:
    return {"head_seq": head.head_seq, "root": head.root.hex() if head.root else None}


def _fault(fault: Fault) -> dict[str, object]:
    return {
        "file": fault.file,
        "offset": fault.offset,
        "stream_seq": fault.stream_seq,
        "what": fault.what,
        "code": fault.code,
    }
