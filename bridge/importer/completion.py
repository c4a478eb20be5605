"""What follows an import: an event of this zone for each bundle, and a checkpoint over all of them.

Each imported bundle is recorded as an event of this zone, the last link of K1 (AGB0 5.2). Since the
bridge may write import streams only, a separate identity writes it, which may append to that stream
alone. The ledger decides what is to be recorded: what an earlier run did not record, the next run
does, and a token beside each event in the outbox limits it to a single event for each bundle.

The bridge does not make or anchor checkpoints; where the settings ask for it, it records that a
checkpoint of this zone's hub covers an import (AGB0 4.5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge import connect
from bridge.audit_log import ImportCheckpoint
from bridge.errors import printable
from bridge.importer.context import ImportContext
from bridge.importer.finish import Completion, finish
from bridge.importer.ledger import BundleRow, ImportLedger, LedgerChange, Uncovered
from bridge.importer.outcome import ImportState
from bridge.settings import BridgeSettings
from bridge.stream_map import COMPLETED, IMPORTS
from veen.client.client import Client
from veen.client.outbox import Note
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import Runtime
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

_RECORDED: Final = "recorded/"
_SIGNED: Final = "\nReceived by"
"""The line of a printed receipt for a signature by hand."""


@dataclass(frozen=True, slots=True)
class Covered:
    """A covering checkpoint. ``anchor`` is the name of its anchor; ``trouble`` why there is none,
    if there should be.
    """

    checkpoint: RecorderCheckpoint
    anchor: str | None = None
    trouble: str | None = None


Cover = Callable[[], Covered]
"""Has the hub make a checkpoint over all streams, and anchors it."""


@dataclass(frozen=True, slots=True)
class Covering:
    """The result: ``covered``, and ``trouble`` if something is still to be done."""

    bundles: int
    covered: Covered | None
    trouble: str | None


def cover_imports(context: ImportContext, cover: Cover) -> Covering | None:
    """Enter a checkpoint in the audit log and on the receipts; None if no bundle waits for one.

    An error is returned, and the next run retries: the import itself is done.
    """
    waiting = context.ledger.uncovered()
    if not waiting:
        return None
    bundle_ids = [uncovered.bundle_id for uncovered in waiting]
    try:
        covered = cover()
    except VeenError as error:
        return Covering(len(bundle_ids), None, f"no checkpoint covers the import yet: {error}")
    beyond = _beyond(context, waiting, covered.checkpoint)
    if beyond is not None:
        return Covering(len(bundle_ids), None, beyond)
    event = ImportCheckpoint(
        operator=context.operator,
        checkpoint_id=covered.checkpoint.checkpoint_id,
        checkpoint_at=covered.checkpoint.created_at,
        log_root=covered.checkpoint.log_root,
        bundles=len(bundle_ids),
        anchor=covered.anchor,
    )
    completion = Completion(
        events=(event,),
        change=LedgerChange(covered=bundle_ids),
        writes=tuple(_receipts(context, bundle_ids, covered)),
    )
    finish(context, completion)
    return Covering(len(bundle_ids), covered, covered.trouble)


def _beyond(
    context: ImportContext, waiting: Sequence[Uncovered], checkpoint: RecorderCheckpoint
) -> str | None:
    """An error if the checkpoint does not reach an import."""
    for uncovered in waiting:
        row, plan = (
            context.ledger.bundle(uncovered.bundle_id),
            context.ledger.plan(uncovered.bundle_id),
        )
        last = plan.target_to if plan is not None else uncovered.target_to
        if row is None or last is None:
            continue
        end = checkpoint.end(row.target)
        if end is None or end.last_seq < last:
            reached = 0 if end is None else end.last_seq
            return (
                f"checkpoint {checkpoint.checkpoint_id.hex()}: expected it to reach event {last} "
                f"of {printable(row.target)}, got {reached}; name the stream under [[streams]] of "
                "the hub's settings"
            )
    return None


def _receipts(
    context: ImportContext, bundle_ids: Sequence[bytes], covered: Covered
) -> list[tuple[str, str]]:
    """The printed receipts with the checkpoint added."""
    line = f"Covered by  checkpoint {covered.checkpoint.checkpoint_id.hex()}\n"
    if covered.anchor is not None:
        line += f"            anchored as {covered.anchor}\n"
    written = []
    for bundle_id in bundle_ids:
        path = context.import_dir.receipts / f"{bundle_id.hex()}.txt"
        if path.exists():
            text, _, signed = path.read_text().rpartition(_SIGNED)
            written.append((context.import_dir.inside(path), f"{text}{line}{_SIGNED}{signed}"))
    return written


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
            known = client.notes(_RECORDED)
            for row in ledger.bundles(ImportState.IMPORTED):
                if _note_name(row) not in known:
                    _record(settings, ledger, client, row, recipient)
            if client.pending():
                client.flush()
    except VeenError as error:
        return f"not every import has its event in {IMPORTS} yet: {error}"
    return None


def _record(
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
        note=Note(_note_name(row), str(now).encode()),
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


def _note_name(row: BundleRow) -> str:
    return f"{_RECORDED}{row.bundle_id.hex()}"
