"""``veen bridge status``: where this side of a bridge stands, and the next safe command."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from bridge.audit import read_log
from bridge.export_history import history
from bridge.export_setup import exporting
from bridge.export_state import ExportState
from bridge.export_status import Standing, standing
from bridge.identities import open_client
from bridge.settings import DEFAULT_PATH, Settings, Zone, load
from bridge.stream_map import ONLINE_LOG
from cli.bridge_options import BridgeConfigOption
from cli.console import show
from cli.failure import Refused
from cli.options import patience, surroundings
from veen.client import recorder_checkpoints

_OFFLINE: Final = "cli.bridge_airlock"


def status(config: BridgeConfigOption = DEFAULT_PATH) -> None:
    """Show how far every stream has come, what is unfinished, and what to run next.

    Nothing is changed. Online it asks the hub as the bridge's identity, and says so if an export
    that runs just now is using it.

    Example: veen bridge status --config bridge.toml
    """
    settings = load(config)
    if settings.zone is Zone.OFFLINE:
        _offline()(settings)
        return
    found = _online(settings)
    entry = found.unfinished
    show(
        {
            "zone": settings.name,
            "state": found.state(),
            "carried": found.carried,
            "unfinished": entry.n if entry else None,
            "audit_pending": found.pending,
            "kept_in_staging": [str(one) for one in found.left],
            "checkpoint": found.checkpoint.checkpoint_id.hex() if found.checkpoint else None,
            "streams": [_row(settings, found, number) for number in range(len(found.streams))],
        }
    )


def _row(settings: Settings, found: Standing, number: int) -> dict[str, Any]:
    one = found.streams[number]
    return {
        "stream": one.stream,
        "target": settings.streams.route(settings.hub.hub_id, one.stream).target,
        "exported": one.exported,
        "checkpointed": one.checkpointed,
    }


def _online(settings: Settings) -> Standing:
    state = ExportState(exporting(settings).state)
    around = surroundings()
    with open_client(settings.hub, settings.audit, surroundings=around) as auditor:
        pending = auditor.pending()
    with open_client(
        settings.hub, settings.bridge, surroundings=around, patience=patience()
    ) as reader:
        signer = reader.session.identity.id_sign
        past = history(read_log(reader, ONLINE_LOG), signer.public)
        checkpoint = recorder_checkpoints.latest(reader.meet(), state.last_checkpoint())
    return standing(
        past,
        settings.streams.sources(settings.hub.hub_id),
        checkpoint,
        pending=pending,
        left=state.left(),
    )


def _offline() -> Callable[[Settings], None]:
    """The other side's own, which its commands bring along."""
    found = import_module(_OFFLINE) if find_spec(_OFFLINE) else None
    shown: Callable[[Settings], None] | None = getattr(found, "offline_status", None)
    if shown is None:
        raise Refused("this program has no importer; the state of an offline zone is its to tell")
    return shown
