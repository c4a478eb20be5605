"""The bodies of imported events: what the origin signed, byte for byte, or a placeholder where
the zone's policy keeps an event out (AGB0 4.5).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bridge.bundle import BundleEvent
from bridge.importer.examine import Loaded
from bridge.importer.ledger_tables import BundleRow, Plan, Span
from bridge.settings_import import ExclusionRule
from veen import seal
from veen.errors import Malformed, Untrusted
from veen.import_event import ImportedEvent
from veen.msg import Msg
from veen.overlay.body import AnyItem
from veen.profile import DEFAULT_PROFILE
from veen.record_event import RecordEvent

LARGEST_ORIGIN: Final = 1_040_000
"""Bytes of an origin's message that fit, with all that stands beside it, into one message here."""

_TOO_LARGE: Final = "its message does not fit into a message of this hub"
_UNTOLD: Final = "its type is not told, and a rule keeps types of this stream out"


class Exclusion(NamedTuple):
    """An event that is kept out; ``position`` counts the events of the bundle from 0."""

    seq: int
    position: int
    leaf_hash: str
    reason: str


def write_exclusions(found: Sequence[Exclusion]) -> str:
    return json.dumps(found)


def read_exclusions(text: str) -> list[Exclusion]:
    return [Exclusion(*one) for one in json.loads(text)]


def exclusions(
    loaded: Loaded, spans: Sequence[Span], row: BundleRow, rules: Sequence[ExclusionRule]
) -> list[Exclusion]:
    """Which of the events that would be written are kept out, and why."""
    mine = [one for one in rules if row.stream.startswith(one.prefix)]
    found = []
    for at in _positions(spans, row.from_seq):
        reason = _reason(loaded.events[at], mine)
        if reason is not None:
            leaf = loaded.receipts[at].leaf_hash.hex()
            found.append(Exclusion(row.from_seq + at, at, leaf, reason))
    return found


def bodies(
    loaded: Loaded, plan: Plan, row: BundleRow, spans: Sequence[Span], bridge_id: bytes
) -> Iterator[bytes]:
    """The bodies of a plan in order: the same plan gives the same bytes."""
    reasons = {one.position: one.reason for one in read_exclusions(plan.kept_out)}
    for position, at in enumerate(_positions(spans, row.from_seq)):
        event, reason = loaded.events[at], reasons.get(at)
        told = event.metadata if event.body_key is None and reason is None else None
        yield ImportedEvent(
            source_hub_id=row.source_hub_id,
            origin_stream=row.stream,
            origin_msg=event.payload if reason is None else None,
            origin_receipt=event.receipt,
            body_key=event.body_key if reason is None else None,
            metadata=AnyItem(told.encode()) if told is not None else None,
            bundle_id=row.bundle_id,
            position=position,
            count=plan.written,
            import_time=plan.import_time,
            bridge_id=bridge_id,
            excluded=reason,
        ).encode()


def _positions(spans: Sequence[Span], first: int) -> Iterator[int]:
    for span in spans:
        yield from range(span.first - first, span.last - first + 1)


def _reason(event: BundleEvent, rules: Sequence[ExclusionRule]) -> str | None:
    if rules:
        kind = _event_type(event)
        for rule in rules:
            if kind == rule.event_type:
                return rule.reason
        if kind is None:
            return _UNTOLD
    return _TOO_LARGE if len(event.payload) > LARGEST_ORIGIN else None


def _event_type(event: BundleEvent) -> str | None:
    if event.metadata is not None:
        return event.metadata.event_type
    if event.body_key is None:
        return None
    try:
        msg = Msg.decode(event.payload)
        body = seal.open_body(body_key=event.body_key, msg=msg, profile=DEFAULT_PROFILE)
        return RecordEvent.decode(body).event_type
    except (Malformed, Untrusted):
        return None
