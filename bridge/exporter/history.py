"""What was exported so far, as the audit log tells it: cursors, the ledger, what was begun
(AGB0 4.6).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from bridge.audit_log import (
    ExportBegin,
    ExportFailed,
    ExportHeartbeat,
    ExportSuccess,
    RecordedEntry,
)
from bridge.carrier.format import NO_ENTRY, TAIL, CarrierLedger, CarrierLedgerEntry
from bridge.stream_map import ONLINE_LOG
from bridge.verify import HeldRoots
from veen.errors import Untrusted


class Cursor(NamedTuple):
    """How far a stream was exported, and the root it had there; 0 and None for not at all."""

    seq: int
    root: bytes | None


@dataclass(frozen=True, slots=True)
class History:
    """``entries`` is the whole ledger of this bridge. ``news`` are the entries of the log that tell
    of anything but the carrying of the log itself.
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
        """The roots of a stream wherever a bundle of it ended: what the next has to join on to."""
        return HeldRoots(
            {success.to_seq: success.root for success in self.successes if success.stream == stream}
        )

    def has_news(self, after: int, upto: int) -> bool:
        return any(after < seq <= upto for seq in self.news)

    def with_entry(self, entry: CarrierLedgerEntry) -> History:
        return replace(self, entries=(*self.entries, entry))

    def with_success(self, event: ExportSuccess) -> History:
        return replace(self.with_done(event.n), successes=(*self.successes, event))

    def with_done(self, n: int) -> History:
        return replace(self, done=self.done | {n})

    def ledger(self, upto: int | None = None) -> CarrierLedger:
        """The ledger up to an entry, or all of it; of which the tail travels."""
        entries = self.entries[:upto]
        return CarrierLedger(bridge_id=self.bridge_id, tail=entries[-TAIL:])

    def begun(self) -> tuple[CarrierLedgerEntry, ...]:
        """What was begun and is on no medium yet, as far as is known."""
        return tuple(entry for entry in self.entries if entry.n not in self.done)

    def unfinished(self) -> CarrierLedgerEntry | None:
        """The first of what was begun and is on no medium yet."""
        return next(iter(self.begun()), None)

    def is_recorded(self, event: ExportSuccess) -> bool:
        """Whether this bridge has brought the bundle to that medium already; another bridge's
        carrier is another one, with another ledger and signature.
        """
        due = (event.bridge_id, event.bundle_id, event.medium)
        return any(
            (success.bridge_id, success.bundle_id, success.medium) == due
            for success in self.successes
        )

    def overlapping(self, stream: str, first: int, last: int) -> tuple[ExportSuccess, ...]:
        """Every bundle that holds any event of a range, once, in order."""
        result = {
            success.bundle_id: success
            for success in self.successes
            if success.stream == stream and success.from_seq <= last and success.to_seq >= first
        }
        return tuple(sorted(result.values(), key=lambda item: item.from_seq))


def history(log: Iterable[RecordedEntry], bridge_id: bytes) -> History:
    """The history of one bridge from the whole of its zone's audit log."""
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
    return History(bridge_id, tuple(entries), tuple(successes), frozenset(done), tuple(news))


def _is_own_carrying(event: object) -> bool:
    """Whether an entry tells only that the log itself was carried, which need not be carried."""
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
            f"{ONLINE_LOG}, stream_seq {seq}: entry {event.n} of the ledger where entry "
            f"{len(entries) + 1} is due; two exporters have shared one identity: stop both, and "
            "give the bridge a new identity"
        )
    return CarrierLedgerEntry(
        n=event.n,
        prev=entries[-1].entry_hash() if entries else NO_ENTRY,
        bundle_id=event.bundle_id,
        hub_id=event.source_hub_id,
        stream=event.stream,
        from_seq=event.from_seq,
        to_seq=event.to_seq,
        checkpoint_id=event.checkpoint_id,
        created_at=event.checkpoint_at,
    )
