"""``veen bridge status`` and ``thaw``, and checkpoints that cover imports (AGB0 4.5, ANCHOR0)."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bridge.audit_log import read_log
from bridge.connect import author_of, open_bridge_client
from bridge.exporter.history import ExportHistory
from bridge.exporter.run import exporting
from bridge.exporter.state import ExporterBusy, ExportState
from bridge.exporter.status import ExporterStatus, export_status
from bridge.importer.completion import Cover, Covered
from bridge.importer.ledger import SourceStream
from bridge.importer.run import ImportRequest, importing
from bridge.importer.unfreeze import unfreeze as unfrozen
from bridge.settings import DEFAULT_PATH, BridgeSettings, BridgeZone, load
from bridge.stream_map import ONLINE_LOG
from cli.bridge_options import BridgeConfigOption, OperatorOption, operator_of
from cli.checkpoint import ActorOptions
from cli.console import show
from cli.errors import NETWORK, REFUSED
from cli.options import HubIdOption, key_in_hex, retry_policy, runtime
from cli.recorder_options import refuse_changed_map
from recorder.anchor.anchors import AnchorScheduler
from recorder.checkpoints.catalogue import RecorderCheckpointName
from recorder.checkpoints.checkpoints import create_checkpoint
from recorder.checkpoints.schedule import RecorderServices
from recorder.checkpoints.store import store_identity
from veen.client.checkpoints import latest_recorder_checkpoint
from veen.client.client import Client
from veen.client.transport import HubRefused, Unreachable
from veen.errors import Refused, VeenError
from veen.keystore.directory import Locked
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.config import BadSettings

_OFFLINE: Final = "cli.bridge_import"


def status(config: BridgeConfigOption = DEFAULT_PATH) -> None:
    """Show the progress of every stream, unfinished work, and what to run next.

    Read-only. In an online zone it queries the hub as the identity of the bridge. If the hub does
    not respond (exit code 2), or a running export uses the identity (exit code 4), it shows the
    local state.

    Example: veen bridge status --config bridge.toml
    """
    settings = load(config)
    if settings.zone is BridgeZone.OFFLINE:
        _offline()(settings)
        return
    state = ExportState(exporting(settings).state)
    try:
        exporter_status = _online(settings, state)
    except (Unreachable, HubRefused, Locked, ExporterBusy) as error:
        show(_known_here(settings, state, error))
        raise typer.Exit(NETWORK if isinstance(error, Unreachable) else REFUSED) from None
    entry = exporter_status.unfinished
    show(
        {
            "zone": settings.name,
            "state": exporter_status.state(),
            "carried": exporter_status.carried,
            "unfinished": entry.n if entry else None,
            "audit_pending": exporter_status.pending,
            "in_staging": [str(path) for path in exporter_status.left],
            "checkpoint": exporter_status.checkpoint.checkpoint_id.hex()
            if exporter_status.checkpoint
            else None,
            "streams": [
                _row(settings, stream.stream, stream.exported, stream.checkpointed)
                for stream in exporter_status.streams
            ],
        }
    )


def _row(
    settings: BridgeSettings, stream: str, exported: int | None, checkpointed: int
) -> dict[str, Any]:
    return {
        "stream": stream,
        "target": settings.streams.route(settings.hub.hub_id, stream).target,
        "exported": exported,
        "checkpointed": checkpointed,
    }


def _online(settings: BridgeSettings, state: ExportState) -> ExporterStatus:
    pending = _pending(settings)
    with open_bridge_client(
        settings.hub,
        settings.bridge,
        runtime=runtime(),
        retry_policy=retry_policy(),
        keys=settings.reader_keys,
    ) as reader:
        checkpoint = latest_recorder_checkpoint(reader.meet(), state.last_checkpoint())
        with _history(reader, state, author_of(settings.audit)) as past:
            return export_status(
                past,
                settings.streams.sources(settings.hub.hub_id),
                checkpoint,
                pending=pending,
                left=state.left(),
            )


@contextmanager
def _history(reader: Client, state: ExportState, author: bytes | None) -> Iterator[ExportHistory]:
    """The history of the exports: that of the exporter, continued, or of the log if it has none."""
    bridge_id = reader.session.identity.id_sign.public
    if not state.root.is_dir():
        log = read_log(reader, ONLINE_LOG, author=author)
        with ExportHistory.folded(log, bridge_id) as past:
            yield past
        return
    with state.locked(), ExportHistory.opened(state.history, bridge_id, reader, author) as past:
        yield past


def _pending(settings: BridgeSettings) -> int:
    with open_bridge_client(settings.hub, settings.audit, runtime=runtime()) as auditor:
        return auditor.pending()


def _known_here(settings: BridgeSettings, state: ExportState, error: VeenError) -> dict[str, Any]:
    """What this host knows without the hub, and that the hub was not asked. How far streams were
    exported is in the hub's log alone.
    """
    last, is_busy = state.last_checkpoint(), isinstance(error, Locked | ExporterBusy)
    detail = f"the hub could not be asked: {error}; this is what is known here"
    ends = [
        (name, last.end(name) if last else None)
        for name in settings.streams.sources(settings.hub.hub_id)
    ]
    return {
        "zone": settings.name,
        "state": detail,
        "carried": None,
        "unfinished": None,
        "audit_pending": None if is_busy else _pending(settings),
        "in_staging": [str(path) for path in state.left()],
        "checkpoint": last.checkpoint_id.hex() if last else None,
        "streams": [_row(settings, name, None, end.last_seq if end else 0) for name, end in ends],
    }


def _offline() -> Callable[[BridgeSettings], None]:
    """The function that shows the status of the importing side, if that is installed."""
    module = import_module(_OFFLINE) if find_spec(_OFFLINE) else None
    show_status: Callable[[BridgeSettings], None] | None = getattr(module, "offline_status", None)
    if show_status is None:
        raise Refused(
            "the commands of the importer are not installed: install veen[bridge] to see an "
            "offline zone"
        )
    return show_status


def cover_of(settings: BridgeSettings) -> Cover | None:
    """A function that makes a covering checkpoint; None if the settings require none. A recorder of
    another hub is refused.
    """
    config = importing(settings).checkpoint
    if config is None:
        return None
    at = ActorOptions(config=config)
    services = at.services()
    if services.settings.hub.hub_id != settings.hub.hub_id:
        raise BadSettings(
            f"[import] checkpoint: {config} is of hub {services.settings.hub.hub_id.hex()}, and "
            "the "
            f"bridge of hub {settings.hub.hub_id.hex()}"
        )
    return lambda: _covered(at, services, config)


def _covered(at: ActorOptions, services: RecorderServices, config: Path) -> Covered:
    refuse_changed_map(services.settings)
    with at.session(services.settings) as session:
        checkpoint = create_checkpoint(
            session, services.checkpoint_store(), services.settings.profile_id()
        ).checkpoint
        store_identity(services.home, session)
    if not services.is_anchoring():
        return Covered(checkpoint)
    known = services.refs().of(checkpoint.checkpoint_id)
    return (
        Covered(checkpoint, known[-1].name)
        if known
        else _anchored(services.anchor_scheduler(), checkpoint, config)
    )


def _anchored(scheduler: AnchorScheduler, checkpoint: RecorderCheckpoint, config: Path) -> Covered:
    now = int(time.time())
    outcome = scheduler.do(scheduler.ask(RecorderCheckpointName.of(checkpoint), now), now)
    if outcome.ref is not None:
        return Covered(checkpoint, outcome.ref.name)
    again = f"veen anchor publish --due --config {shlex.quote(str(config))}"
    return Covered(checkpoint, None, f"the checkpoint has no anchor yet: {outcome.error}; {again}")


def unfreeze(
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="Name of the stream at the source.")
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason; audited.")],
    config: BridgeConfigOption = DEFAULT_PATH,
    hub_id: HubIdOption = None,
    forget: Annotated[
        bool,
        typer.Option("--forget-checkpoint", help="Accept the next checkpoint of its hub."),
    ] = False,
    operator: OperatorOption = None,
) -> None:
    """Unfreeze a stream that was frozen because its hub signed two histories.

    Run it after the exporting zone has confirmed the history that was imported. The next veen
    bridge import accepts bundles that continue it; the other history stays refused. Both receipts
    stay in quarantine/, and every reconciliation reports them.

    If the hub contradicts a checkpoint, and the exporting zone has confirmed that its log was lost
    after it, --forget-checkpoint accepts the other one. Imported events stay.

    Example: veen bridge thaw export/plant-1/changes --reason "case 12: backup restored"
    """
    settings = load(config)
    source_stream = SourceStream(_hub_of(settings, stream, hub_id), stream)
    order = ImportRequest(operator=operator_of(operator), reason=reason)
    seq = unfrozen(settings, source_stream, order, runtime(), retry_policy(), forget=forget)
    show(
        {
            "stream": stream,
            "hub": source_stream.source_hub_id.hex(),
            "was_frozen_at": seq,
            "next": "veen bridge import",
        }
    )


def _hub_of(settings: BridgeSettings, stream: str, given: str | None) -> bytes:
    if given is not None:
        return key_in_hex("--hub-id", given)
    hubs = {route.hub_id for route in settings.streams.routes if route.source == stream}
    if len(hubs) != 1:
        count = "no hub" if not hubs else f"{len(hubs)} hubs"
        raise Refused(f"{count} of the settings has a stream {stream}; name one with --hub-id")
    return hubs.pop()
