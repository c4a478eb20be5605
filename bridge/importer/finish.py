"""Completion of an outcome: its audit entry first, then files to where they belong (AGB0 4.6).

The pending actions are in the ledger beforehand; each is idempotent, so that a completion that was
interrupted is repeated.

Each imported bundle is also recorded as an event of this zone, the last link of K1 (AGB0 5.2).
Since the bridge may write import streams only, a separate identity writes it, which may append to
that stream alone. The ledger decides what is due: what an earlier run did not record, the next run
does, and a token beside each event in the outbox limits it to a single event for each bundle.
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

_NOTED: Final = "recorded/"


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
    """The fields of a failure; ``of`` is the verified or the claimed bundle, if it is known."""
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


def apply_pending(context: ImportContext, pending: PendingActions) -> None:
    """Do all pending actions, or raise AuditPending with only the entry in the outbox."""
    context.audit_outbox.once(pending.token, pending.bodies)
    for path, text in pending.writes:
        target = context.import_dir.root / path
        context.import_dir.make_folder(target.parent)
        durable.write(target, text.encode())
    for source, target_name in pending.moves:
        context.import_dir.move(source, target_name)
    for name in pending.removals:
        context.import_dir.remove(name)
    context.ledger.closed(pending)


def pending_actions(
    context: ImportContext,
    events: Sequence[AuditEvent],
    *,
    moves: tuple[tuple[str, str], ...] = (),
    removals: tuple[str, ...] = (),
) -> PendingActions:
    return PendingActions(
        token=context.random(16),
        bodies=tuple(context.audit_outbox.body(event) for event in events),
        moves=moves,
        removals=removals,
    )


def outcome_of(
    state: ImportState,
    carrier: IncomingCarrier,
    row: BundleRow | None,
    *,
    code: str = "",
    detail: str = "",
    duplicates: int = 0,
    place: str = "",
) -> ImportOutcome:
    return ImportOutcome(
        state=state,
        name=carrier.name,
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


def record_imports(
    settings: BridgeSettings,
    ledger: ImportLedger,
    recipient: bytes,
    runtime: Runtime,
    retry_policy: RetryPolicy | None,
) -> str | None:
    """Record every imported bundle that is not recorded yet; None if all of them are.

    An error is returned, and the next run retries: the import itself is done.
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
    """The payload: what was imported, its origin, and its place here."""
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
