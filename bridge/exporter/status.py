"""The status of an exporter, and the next safe command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bridge.carrier.format import CarrierLedgerEntry
from bridge.exporter.history import ExportHistory
from bridge.stream_map import ONLINE_LOG
from veen.recorder_checkpoint import RecorderCheckpoint

_EXPORT = "veen bridge export --medium DIR"


@dataclass(frozen=True, slots=True)
class ExportedStream:
    """The last exported event of a stream, and the last that the latest checkpoint covers."""

    stream: str
    exported: int
    checkpointed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterStatus:
    """``pending`` audit entries wait on disk; ``left`` is what a failed run left behind."""

    streams: tuple[ExportedStream, ...]
    checkpoint: RecorderCheckpoint | None
    carried: int
    unfinished: CarrierLedgerEntry | None
    pending: int
    left: tuple[Path, ...]
    has_news: bool

    def state(self) -> str:
        """A line for people, with the next command."""
        if self.pending:
            return f"{self.pending} audit entries wait for the hub; once it answers: {_EXPORT}"
        if self.is_behind():
            return "the hub ends before the export, so it was set back; compare it with its archive"
        if self.unfinished is not None:
            return f"carrier {self.unfinished.n} is unfinished; next: {_EXPORT}"
        if self.checkpoint is None:
            return "the hub has no checkpoint yet; next: veen recorder checkpoint create"
        if self.has_news:
            return f"there are events to export; next: {_EXPORT}"
        return f"all up to the last checkpoint is exported; to prove it: {_EXPORT} --heartbeat"

    def is_behind(self) -> bool:
        return self.checkpoint is not None and any(
            stream.checkpointed < stream.exported for stream in self.streams
        )


def export_status(
    past: ExportHistory,
    streams: Sequence[str],
    checkpoint: RecorderCheckpoint | None,
    *,
    pending: int,
    left: Sequence[Path],
) -> ExporterStatus:
    ends = []
    for name in streams:
        end = checkpoint.end(name) if checkpoint else None
        ends.append(ExportedStream(name, past.cursor(name).seq, end.last_seq if end else 0))
    return ExporterStatus(
        streams=tuple(ends),
        checkpoint=checkpoint,
        carried=past.done_total(),
        unfinished=next(iter(past.begun()), None),
        pending=pending,
        left=tuple(left),
        has_news=any(_has_news(past, stream) for stream in ends),
    )


def _has_news(past: ExportHistory, end: ExportedStream) -> bool:
    if end.stream == ONLINE_LOG:
        return past.has_news(end.exported, end.checkpointed)
    return end.checkpointed > end.exported
