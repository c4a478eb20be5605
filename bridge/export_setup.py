"""An exporter as the settings of its zone describe it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bridge.audit import AuditWriter, Clock
from bridge.carrier.watch import Watch, unwatched
from bridge.export_audit import ExportAudit
from bridge.export_carrier import Workshop
from bridge.export_delivery import Media
from bridge.export_run import Exporter
from bridge.export_state import ExportState
from bridge.exporter import Caps, Opener
from bridge.identities import open_client, reader_keys, recipient
from bridge.settings import Settings
from bridge.settings_export import ExportSettings
from bridge.stream_map import ONLINE_LOG
from veen.client.client import Client
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience
from veen.settings_table import BadSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run of the exporter takes from whoever starts it."""

    media: Media
    operator: str
    surroundings: Surroundings
    now_ms: Clock
    patience: Patience | None = None
    streams: tuple[str, ...] = ()
    """Of the settings, those to be exported; all where none is named."""
    workers: int = 1
    watch: Watch = unwatched


def exporting(settings: Settings) -> ExportSettings:
    if settings.exporting is None:
        raise BadSettings("these are the settings of an offline zone, which exports nothing")
    return settings.exporting


@contextmanager
def opened(settings: Settings, run: Run) -> Iterator[Exporter]:
    """The exporter with both of its identities at the hub, for as long as it is needed."""
    with (
        open_client(
            settings.hub,
            settings.bridge,
            surroundings=run.surroundings,
            patience=run.patience,
            keys=settings.reader_keys,
        ) as reader,
        open_client(
            settings.hub, settings.audit, surroundings=run.surroundings, patience=run.patience
        ) as auditor,
    ):
        yield _exporter(settings, run, reader, auditor)


def _exporter(settings: Settings, run: Run, reader: Client, auditor: Client) -> Exporter:
    wanted, session = exporting(settings), reader.meet()
    signer = session.identity.id_sign
    writer = AuditWriter(
        auditor,
        ONLINE_LOG,
        origin=settings.name,
        recipient=recipient(settings.audit_reader, run.surroundings.clock()),
        clock=run.now_ms,
    )
    return Exporter(
        streams=_streams(settings, run),
        caps=Caps(wanted.max_bundle_bytes, wanted.max_bundle_events),
        state=ExportState(wanted.state),
        reader=reader,
        opener=Opener(_keys(settings, reader), session.limits),
        workshop=Workshop(
            hub=session.hub,
            signer=signer,
            packing=wanted.packing,
            recipient=wanted.recipient,
            workers=run.workers,
            watch=run.watch,
        ),
        audit=ExportAudit(
            writer,
            bridge_id=signer.public,
            operator=run.operator,
            medium=run.media.medium_id,
        ),
        media=run.media,
        watch=run.watch,
    )


def _streams(settings: Settings, run: Run) -> tuple[str, ...]:
    for name in run.streams:
        settings.streams.route(settings.hub.hub_id, name)
    return run.streams or settings.streams.sources(settings.hub.hub_id)


def _keys(settings: Settings, reader: Client) -> tuple[bytes, ...]:
    """Of the zone's reader first, where it has one: most events are sealed to it."""
    others = reader_keys(settings.reader) if settings.reader else ()
    return (*others, *reader.session.identity.readers())
