"""One recorder event of this zone for each bundle that was imported: K1's last link (AGB0 5.2).

The bridge writes import streams and nothing else, so the event is written by an identity of its
own, which may append to that one stream. It goes by the ledger: what an earlier run did not record
is recorded by the next one, and the note beside each event in the outbox keeps it to one for a
bundle.
"""

from __future__ import annotations

from typing import Any, Final

from bridge import identities
from bridge.importer.ledger import ImportLedger
from bridge.importer.ledger_tables import BundleRow
from bridge.importer.outcome import State
from bridge.settings import Settings
from bridge.stream_map import COMPLETED, IMPORTS
from veen import json_body
from veen.client.client import Client
from veen.client.outbox import Note
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience
from veen.errors import VeenError
from veen.overlay.body import AnyItem
from veen.record_event import SCHEMA, RecordEvent

_NOTED: Final = "recorded/"


def record_imports(
    settings: Settings,
    ledger: ImportLedger,
    recipient: bytes,
    surroundings: Surroundings,
    patience: Patience | None,
) -> str | None:
    """Record every bundle that was imported and is not recorded yet; None when all of them are.

    What fails is returned, and tried again by the next run: the import itself is done.
    """
    if settings.import_recorder is None:
        return None
    try:
        with identities.open_client(
            settings.hub, settings.import_recorder, surroundings=surroundings, patience=patience
        ) as client:
            known = client.notes(_NOTED)
            for row in ledger.bundles(State.IMPORTED):
                if _name(row) not in known:
                    _keep(settings, ledger, client, row, recipient)
            if client.pending():
                client.flush()
    except VeenError as error:
        return f"not every import has its event in {IMPORTS} yet: {error}"
    return None


def _keep(
    settings: Settings, ledger: ImportLedger, client: Client, row: BundleRow, recipient: bytes
) -> None:
    now = client.session.surroundings.clock()
    event = RecordEvent(
        subject_id=f"bundle:{row.bundle_id.hex()}",
        principal_id=client.session.identity.client_id,
        event_type=COMPLETED,
        event_time=now * 1000,
        origin=f"bridge@{settings.name}",
        payload=AnyItem(json_body.encode_value(_payload(ledger, row))),
    )
    client.emit_each(
        [(IMPORTS, event.encode())],
        note=Note(_name(row), str(now).encode()),
        schema=SCHEMA,
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
