"""The report of a reconciliation: the same facts, the same bytes (AGB0 4.7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from bridge.reconcile.alarms import LedgerReport
from bridge.reconcile.facts import Checkpoint, Fork, Repeat, Stranger
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.stream_report import Class, StreamReport
from veen import canonical_json
from veen.digest import ht

VERSION: Final = 1
KIND: Final = "bridge.reconciled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Streams by hub and name, ledgers by bridge. ``unplaced`` bundles were refused before it was
    known what is in them, and no ledger or audit tells it either.
    """

    streams: tuple[StreamReport, ...]
    ledgers: tuple[LedgerReport, ...]
    forks: tuple[Fork, ...]
    repeats: tuple[tuple[bytes, int], ...]
    unplaced: tuple[bytes, ...]
    strangers: tuple[Stranger, ...]
    sources: tuple[Checkpoint, ...]
    target: Checkpoint | None

    @property
    def closed_before(self) -> int:
        """Before this hub time, every stream is accounted for (K2)."""
        return min((one.closed.before for one in self.streams), default=0)

    @property
    def has_alarms(self) -> bool:
        odd = [one for one in self.ledgers if one.repeated or one.forked]
        lies = [one for one in self.streams if one.unfulfilled or one.duplicate]
        return bool(self.forks or odd or lies or self.strangers)

    @property
    def is_whole(self) -> bool:
        """Whether everything that is known to have been exported is here, and nothing is odd."""
        return not self.has_alarms and not self.unplaced and all(
            one.is_whole for one in self.streams
        ) and not any(one.unknown for one in self.ledgers)  # fmt: skip

    def count(self, wanted: Class) -> int:
        return sum(one.classes[wanted].count for one in self.streams)

    def document(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "kind": KIND,
            "whole": self.is_whole,
            "closed_before": self.closed_before,
            "events": {one.value: self.count(one) for one in Class},
            "checkpoints": {
                "sources": [_checkpoint(one) for one in self.sources],
                "target": _checkpoint(self.target) if self.target else None,
            },
            "streams": [_stream(one) for one in self.streams],
            "ledgers": [_ledger(one) for one in self.ledgers],
            "repeats": [
                {"bundle_id": bundle_id.hex(), "times": times} for bundle_id, times in self.repeats
            ],
            "unplaced": [one.hex() for one in self.unplaced],
            "alarms": _alarms(self),
        }

    def encode(self) -> bytes:
        return canonical_json.encode(self.document())

    def digest(self) -> bytes:
        """What is signed, recorded and anchored."""
        return digest_of(self.encode())


def digest_of(encoded: bytes) -> bytes:
    return ht("veen/bridge-report", encoded)


def count_repeats(repeats: Iterable[Repeat]) -> tuple[tuple[bytes, int], ...]:
    times: dict[bytes, int] = {}
    for one in set(repeats):
        times[one.bundle_id] = times.get(one.bundle_id, 0) + 1
    return tuple(sorted(times.items()))


def _checkpoint(one: Checkpoint) -> dict[str, Any]:
    return {
        "hub_id": one.hub_id.hex(),
        "checkpoint_id": one.checkpoint_id.hex(),
        "created_at": one.created_at,
        "log_root": one.log_root.hex(),
    }


def _set(found: Ranges) -> dict[str, Any]:
    return {"events": found.count, "ranges": [list(one) for one in found]}


def _stream(one: StreamReport) -> dict[str, Any]:
    return {
        "hub_id": one.hub_id.hex(),
        "stream": one.stream,
        "target": one.target,
        "horizon": one.horizon,
        "exported": _set(one.exported),
        "classes": {name.value: _set(found) for name, found in one.classes.items()},
        "duplicate": _set(one.duplicate),
        "unannounced": _set(one.unannounced),
        "unfulfilled": _set(one.unfulfilled),
        "untold": _set(one.untold),
        "closed": {"to_seq": one.closed.to_seq, "before": one.closed.before},
        "open": _set(one.open),
        "bundles": [
            {
                "bundle_id": bundle.bundle_id.hex(),
                "from_seq": bundle.first,
                "to_seq": bundle.last,
                "state": bundle.state.value,
                "events": bundle.events,
                "told_by": list(bundle.told_by),
            }
            for bundle in one.bundles
        ],
    }


def _ledger(one: LedgerReport) -> dict[str, Any]:
    return {
        "bridge_id": one.bridge_id.hex(),
        "newest": one.newest,
        "unknown": [list(span) for span in one.unknown],
    }


def _alarms(report: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"alarm": "equivocation", "hub_id": one.hub_id.hex(), "stream": one.stream, "seq": one.seq}
        for one in report.forks
    ]
    for ledger in report.ledgers:
        bridge_id = ledger.bridge_id.hex()
        found += [
            {"alarm": alarm, "bridge_id": bridge_id, "n": n}
            for alarm, numbers in (
                ("ledger.repeated", ledger.repeated), ("ledger.forked", ledger.forked)
            )
            for n in numbers
        ]  # fmt: skip
    found += [
        {"alarm": "import.stranger", "target": one.target, "seq": one.seq}
        for one in report.strangers
    ]
    for stream in report.streams:
        found += [
            {
                "alarm": alarm,
                "hub_id": stream.hub_id.hex(),
                "stream": stream.stream,
                "from_seq": span.first,
                "to_seq": span.last,
            }
            for alarm, spans in (
                ("import.doubled", stream.duplicate), ("import.unfulfilled", stream.unfulfilled)
            )
            for span in spans
        ]  # fmt: skip
    return found
