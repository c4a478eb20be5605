"""``veen bridge status``: where this side of a bridge stands, and the next safe command."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import typer

from bridge.audit import read_log
from bridge.export_history import history
from bridge.export_setup import exporting
from bridge.export_state import ExportState
from bridge.export_status import Standing, standing
from bridge.identities import author_of, open_client
from bridge.settings import DEFAULT_PATH, Settings, Zone, load
from bridge.stream_map import ONLINE_LOG
from cli.bridge_options import BridgeConfigOption
from cli.console import show
from cli.failure import NETWORK, REFUSED, Refused
from cli.options import patience, surroundings
from veen.client import recorder_checkpoints
from veen.client.errors import HubRefused, Unreachable
from veen.errors import VeenError
from veen.keystore.directory import Locked

_OFFLINE: Final = "cli.bridge_airlock"


def status(config: BridgeConfigOption = DEFAULT_PATH) -> None:
    """Show how far every stream has come, what is unfinished, and what to run next.

    Nothing is changed. Online it asks the hub as the bridge's identity. If the hub does not answer
    (exit code 2), or an export that runs just now is using the identity (exit code 4), it says so
    and shows what is known here.

    Example: veen bridge status --config bridge.toml
    """
    settings = load(config)
    if settings.zone is Zone.OFFLINE:
        _offline()(settings)
        return
    state = ExportState(exporting(settings).state)
    try:
        found = _online(settings, state)
    except (Unreachable, HubRefused, Locked) as error:
        show(_known_here(settings, state, error))
        raise typer.Exit(NETWORK if isinstance(error, Unreachable) else REFUSED) from None
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
            "streams": [
                _row(settings, one.stream, one.exported, one.checkpointed) for one in found.streams
            ],
        }
    )


def _row(
    settings: Settings, stream: str, exported: int | None, checkpointed: int
) -> dict[str, Any]:
    return {
        "stream": stream,
        "target": settings.streams.route(settings.hub.hub_id, stream).target,
        "exported": exported,
        "checkpointed": checkpointed,
    }


def _online(settings: Settings, state: ExportState) -> Standing:
    pending = _pending(settings)
    with open_client(
        settings.hub,
        settings.bridge,
        surroundings=surroundings(),
        patience=patience(),
        keys=settings.reader_keys,
    ) as reader:
        signer = reader.session.identity.id_sign
        log = read_log(reader, ONLINE_LOG, author=author_of(settings.audit))
        past = history(log, signer.public)
        checkpoint = recorder_checkpoints.latest(reader.meet(), state.last_checkpoint())
    return standing(
        past,
        settings.streams.sources(settings.hub.hub_id),
        checkpoint,
        pending=pending,
        left=state.left(),
    )


def _pending(settings: Settings) -> int:
    with open_client(settings.hub, settings.audit, surroundings=surroundings()) as auditor:
        return auditor.pending()


def _known_here(settings: Settings, state: ExportState, error: VeenError) -> dict[str, Any]:
    """What this host knows without the hub, and that the hub was not asked. How far streams were
    exported is in the hub's log alone.
    """
    last, is_busy = state.last_checkpoint(), isinstance(error, Locked)
    told = f"the hub could not be asked: {error}; this is what is known here"
    ends = [
        (name, last.end(name) if last else None)
        for name in settings.streams.sources(settings.hub.hub_id)
    ]
    return {
        "zone": settings.name,
        "state": told,
        "carried": None,
        "unfinished": None,
        "audit_pending": None if is_busy else _pending(settings),
        "kept_in_staging": [str(one) for one in state.left()],
        "checkpoint": last.checkpoint_id.hex() if last else None,
        "streams": [_row(settings, name, None, end.last_seq if end else 0) for name, end in ends],
    }


def _offline() -> Callable[[Settings], None]:
    """The other side's own, which its commands bring along."""
    found = import_module(_OFFLINE) if find_spec(_OFFLINE) else None
    shown: Callable[[Settings], None] | None = getattr(found, "offline_status", None)
    if shown is None:
        raise Refused("this program has no importer; the state of an offline zone is its to tell")
    return shown
