"""What verdicts on a carrier have in common: what is left to do about it, and what is told."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.audit_events import AuditEvent
from bridge.importer.ledger_tables import BundleRow, Closing
from bridge.importer.outcome import Outcome, State
from bridge.importer.tools import Tools
from bridge.importer.work import Work


def closing_of(
    tools: Tools,
    events: Sequence[AuditEvent],
    *,
    moves: tuple[tuple[str, str], ...] = (),
    removals: tuple[str, ...] = (),
) -> Closing:
    return Closing(
        token=tools.random(16),
        bodies=tuple(tools.trail.body(one) for one in events),
        moves=moves,
        removals=removals,
    )


def outcome_of(
    state: State,
    work: Work,
    row: BundleRow | None,
    *,
    code: str = "",
    told: str = "",
    duplicates: int = 0,
    place: str = "",
) -> Outcome:
    return Outcome(
        state=state,
        name=work.name,
        bundle_id=row.bundle_id if row else None,
        stream=row.stream if row else "",
        from_seq=row.from_seq if row else 0,
        to_seq=row.to_seq if row else 0,
        checkpoint_at=row.checkpoint_at if row else None,
        duplicates=duplicates,
        code=code,
        told=told,
        place=place,
    )
