"""What every audit entry about a bundle, and about a carrier that fails, tells of it (AGB0 4.6).

Closing an outcome: its audit entry first, then files to where they belong (AGB0 4.6).

What is to be done was written down before; each step may be done twice, so that a closing that
was cut short is simply done again.

What verdicts on a carrier have in common: what is left to do about it, and what is told.

One recorder event of this zone for each bundle that was imported: K1's last link (AGB0 5.2).

The bridge writes import streams and nothing else, so the event is written by an identity of its
own, which may append to that one stream. It goes by the ledger: what an earlier run did not record
is recorded by the next one, and the note beside each event in the outbox keeps it to one for a
bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypedDict

from bridge import connect
from bridge.audit_log import AuditEvent
from bridge.errors import Refused
from bridge.importer.context import ImportContext
from bridge.importer.ledger import BundleRow, ImportLedger, PendingActions
from bridge.importer.outcome import ClaimedBundle, ImportOutcome, ImportState, IncomingCarrier
from bridge.settings import BridgeSettings
from bridge.stream_map import COMPLETED, IMPORTS
from veen.client.client import Client
from veen.client.outbox import Note
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.system import durable
from veen.system.environment import Runtime
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor


class BundleFields(TypedDict):
    operator: str
    bundle_id: bytes
    sha256: bytes
    source_hub_id: bytes
    stream: str
    from_seq: int
    to_seq: int
    count: int


class FailedFields(TypedDict):
    operator: str
    bundle_id: bytes | None
    sha256: bytes
    source_hub_id: bytes | None
    stream: str | None
    from_seq: int | None
    to_seq: int | None
    position: int | None
    offset: int | None
    is_claimed: bool


def bundle_fields(row: BundleRow, operator: str) -> BundleFields:
    return {
        "operator": operator,
        "bundle_id": row.bundle_id,
        "sha256": row.sha256,
        "source_hub_id": row.source_hub_id,
        "stream": row.stream,
        "from_seq": row.from_seq,
        "to_seq": row.to_seq,
        "count": row.count,
    }


def failed_fields(
    operator: str, sha256: bytes, of: BundleRow | ClaimedBundle | None, error: Refused
) -> FailedFields:
    """``of`` is what was verified to be carried, or is claimed, or cannot be known."""
    named = of if isinstance(of, ClaimedBundle) else None
    if isinstance(of, BundleRow):
        named = ClaimedBundle(of.bundle_id, of.source_hub_id, of.stream, of.from_seq, of.to_seq)
        sha256 = of.sha256 or sha256
    return {
        "operator": operator,
        "bundle_id": named.bundle_id if named else None,
        "sha256": sha256,
        "source_hub_id": named.source_hub_id if named else None,
        "stream": named.stream if named else None,
        "from_seq": named.from_seq if named else None,
        "to_seq": named.to_seq if named else None,
        "position": named.position(error.seq) if named and error.seq is not None else None,
        "offset": error.offset,
        "is_claimed": isinstance(of, ClaimedBundle),
    }


def apply_pending(tools: ImportContext, closing: PendingActions) -> None:
    """Do all of it, or raise AuditPending with nothing but the entry kept."""
    tools.audit_outbox.once(closing.token, closing.bodies)
    for path, text in closing.writes:
        target = tools.airlock.root / path
        tools.airlock.make_folder(target.parent)
        durable.write(target, text.encode())
    for source, target_name in closing.moves:
        tools.airlock.move(source, target_name)
    for name in closing.removals:
        tools.airlock.remove(name)
    tools.ledger.closed(closing)


def pending_actions(
    tools: ImportContext,
    events: Sequence[AuditEvent],
    *,
    moves: tuple[tuple[str, str], ...] = (),
    removals: tuple[str, ...] = (),
) -> PendingActions:
    return PendingActions(
        token=tools.random(16),
        bodies=tuple(tools.audit_outbox.body(event) for event in events),
        moves=moves,
        removals=removals,
    )


def outcome_of(
    state: ImportState,
    work: IncomingCarrier,
    row: BundleRow | None,
    *,
    code: str = "",
    detail: str = "",
    duplicates: int = 0,
    place: str = "",
) -> ImportOutcome:
    return ImportOutcome(
        state=state,
        name=work.name,
        bundle_id=row.bundle_id if row else None,
        stream=row.stream if row else "",
        from_seq=row.from_seq if row else 0,
        to_seq=row.to_seq if row else 0,
        checkpoint_at=row.checkpoint_at if row else None,
        duplicates=duplicates,
        code=code,
        detail=detail,
        place=place,
    )


_NOTED: Final = "recorded/"


def record_imports(
    settings: BridgeSettings,
    ledger: ImportLedger,
    recipient: bytes,
    runtime: Runtime,
    retry_policy: RetryPolicy | None,
) -> str | None:
    """Record every bundle that was imported and is not recorded yet; None when all of them are.

    What fails is returned, and tried again by the next run: the import itself is done.
    """
    if settings.import_recorder is None:
        return None
    try:
        with connect.open_bridge_client(
            settings.hub, settings.import_recorder, runtime=runtime, retry_policy=retry_policy
        ) as client:
            known = client.notes(_NOTED)
            for row in ledger.bundles(ImportState.IMPORTED):
                if _name(row) not in known:
                    _keep(settings, ledger, client, row, recipient)
            if client.pending():
                client.flush()
    except VeenError as error:
        return f"not every import has its event in {IMPORTS} yet: {error}"
    return None


def _keep(
    settings: BridgeSettings, ledger: ImportLedger, client: Client, row: BundleRow, recipient: bytes
) -> None:
    now = client.session.runtime.clock()
    event = RecordEvent(
        subject_id=f"bundle:{row.bundle_id.hex()}",
        principal_id=client.session.identity.client_id,
        event_type=COMPLETED,
        event_time=now * 1000,
        origin=f"bridge@{settings.name}",
        payload=AnyItem(value_to_cbor(_payload(ledger, row))),
    )
    client.emit_each(
        [(IMPORTS, event.encode())],
        note=Note(_name(row), str(now).encode()),
        schema=RECORD_SCHEMA,
        recipient=recipient,
    )


def _payload(ledger: ImportLedger, row: BundleRow) -> dict[str, Any]:
    """What was imported, from where, and where it stands here."""
    plan = ledger.plan(row.bundle_id)
    written = plan.written if plan is not None else None
    last = plan.target_to if plan is not None and plan.target_to else None
    return {
        "bundle_id": row.bundle_id.hex(),
        "sha256": row.sha256.hex(),
        "source_hub_id": row.source_hub_id.hex(),
        "source_stream": row.stream,
        "source_from": row.from_seq,
        "source_to": row.to_seq,
        "checkpoint_id": row.checkpoint_id.hex(),
        "import_stream": row.target,
        "import_from": last - written + 1 if last is not None and written else None,
        "import_to": last if written else None,
        "imported": written,
    }


def _name(row: BundleRow) -> str:
    return f"{_NOTED}{row.bundle_id.hex()}"
