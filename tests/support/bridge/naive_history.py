"""The export history in memory, from the whole audit log: what the exporter's database must say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bridge.audit_log import (
    ExportBegin,
    ExportFailed,
    ExportHeartbeat,
    ExportSuccess,
    RecordedEntry,
)
from bridge.carrier.format import TAIL, CarrierLedger, CarrierLedgerEntry
from bridge.exporter.build import Cursor
from bridge.stream_map import ONLINE_LOG
from support.bridge.held_roots import HeldRoots
from veen.errors import Untrusted


@dataclass(frozen=True, slots=True)
class NaiveHistory:
    """The exports so far. ``entries`` is the whole ledger of this bridge. ``news`` are the entries
    of the log about anything but the export of the log itself.
    """

    bridge_id: bytes
    entries: tuple[CarrierLedgerEntry, ...]
    successes: tuple[ExportSuccess, ...]
    done: frozenset[int]
    news: tuple[int, ...]

    def cursor(self, stream: str) -> Cursor:
        mine = [success for success in self.successes if success.stream == stream]
        last = max(mine, key=lambda item: item.to_seq, default=None)
        return Cursor(last.to_seq, last.root) if last else Cursor(0, None)

    def roots(self, stream: str) -> HeldRoots:
        """The roots of a stream at the end of each exported bundle, which the next must
        continue.
        """
        return HeldRoots(
            {success.to_seq: success.root for success in self.successes if success.stream == stream}
        )

    def has_news(self, after: int, upto: int) -> bool:
        return any(after < seq <= upto for seq in self.news)

    def ledger(self, upto: int | None = None) -> CarrierLedger:
        """The tail of the ledger up to an entry, or of all of it, as a carrier contains it."""
        entries = self.entries[:upto]
        return CarrierLedger(bridge_id=self.bridge_id, tail=entries[-TAIL:])

    def begun(self) -> tuple[CarrierLedgerEntry, ...]:
        """Entries that were begun and are not known to be on a medium."""
        return tuple(entry for entry in self.entries if entry.n not in self.done)

    def unfinished(self) -> CarrierLedgerEntry | None:
        """The first entry that was begun and is not known to be on a medium."""
        return next(iter(self.begun()), None)

    def is_recorded(self, event: ExportSuccess) -> bool:
        """Whether this bridge already recorded the bundle on that medium. The carrier of another
        bridge is a different carrier, with another ledger and signature.
        """
        delivery = (event.bridge_id, event.bundle_id, event.medium)
        return any(
            (success.bridge_id, success.bundle_id, success.medium) == delivery
            for success in self.successes
        )

    def overlapping(self, stream: str, first: int, last: int) -> tuple[ExportSuccess, ...]:
        """Every bundle with an event of a range, once, in order."""
        by_bundle = {
            success.bundle_id: success
            for success in self.successes
            if success.stream == stream and success.from_seq <= last and success.to_seq >= first
        }
        return tuple(sorted(by_bundle.values(), key=lambda item: item.from_seq))


def naive_history(log: Iterable[RecordedEntry], bridge_id: bytes) -> NaiveHistory:
    """The history of one bridge from the complete audit log of its zone."""
    entries: list[CarrierLedgerEntry] = []
    successes: list[ExportSuccess] = []
    done: set[int] = set()
    news: list[int] = []
    for seq, _, event in log:
        if isinstance(event, ExportBegin) and event.bridge_id == bridge_id:
            entries.append(_following(entries, event, seq))
        if isinstance(event, ExportSuccess):
            successes.append(event)
        if isinstance(event, ExportSuccess | ExportHeartbeat) and event.bridge_id == bridge_id:
            done.add(event.n)
        if not _is_own_carrying(event):
            news.append(seq)
    return NaiveHistory(bridge_id, tuple(entries), tuple(successes), frozenset(done), tuple(news))


def _is_own_carrying(event: object) -> bool:
    """Whether an entry is only about the export of the log itself, which need not be exported."""
    if isinstance(event, ExportBegin | ExportSuccess):
        return event.stream in (ONLINE_LOG, "")
    if isinstance(event, ExportFailed):
        return event.stream == ONLINE_LOG
    return isinstance(event, ExportHeartbeat)


def _following(
    entries: list[CarrierLedgerEntry], event: ExportBegin, seq: int
) -> CarrierLedgerEntry:
    if event.n != len(entries) + 1:
        raise Untrusted(
            f"{ONLINE_LOG}, stream_seq {seq}: expected ledger entry {len(entries) + 1}, got "
            f"{event.n}: two exporters have used one identity; stop both, and give the bridge "
            "a new identity"
        )
    return event.ledger_entry(entries[-1] if entries else None)
