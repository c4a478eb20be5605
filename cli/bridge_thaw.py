"""``veen bridge thaw``: let a frozen stream go on with the history that is held."""

from __future__ import annotations

from typing import Annotated

import typer

from bridge.importer.ledger_tables import Stream
from bridge.importer.run import Order
from bridge.importer.thaw import thaw as thawed
from bridge.settings import DEFAULT_PATH, Settings, load
from cli.bridge_options import BridgeConfigOption, OperatorOption, operator_of
from cli.console import show
from cli.failure import Refused
from cli.options import HubIdOption, key_in_hex, patience, surroundings


def thaw(
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="The stream by its name at the source.")
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why it may go on; is audited.")
    ],
    config: BridgeConfigOption = DEFAULT_PATH,
    hub_id: HubIdOption = None,
    forget: Annotated[
        bool,
        typer.Option("--forget-checkpoint", help="Of its hub, the next checkpoint counts."),
    ] = False,
    operator: OperatorOption = None,
) -> None:
    """Let a stream go on that is frozen, because its hub told two histories of it.

    Do it once the exporting zone has said that the history that is held is theirs. Bundles that
    continue it go in again, with the next veen bridge import; the other history is refused as
    before. Both receipts stay in quarantine/, and every reconciliation goes on telling of them.

    Where a checkpoint is what the hub contradicts, and the exporting zone has said that what it
    told then was lost, --forget-checkpoint lets the other one count. Events that are held stay.

    Example: veen bridge thaw export/plant-1/changes --reason "case 12: backup restored"
    """
    settings = load(config)
    found = Stream(_hub_of(settings, stream, hub_id), stream)
    order = Order(operator=operator_of(operator), reason=reason)
    seq = thawed(settings, found, order, surroundings(), patience(), forget=forget)
    show(
        {
            "stream": stream,
            "hub": found.source_hub_id.hex(),
            "was_frozen_at": seq,
            "next": "veen bridge import",
        }
    )


def _hub_of(settings: Settings, stream: str, given: str | None) -> bytes:
    if given is not None:
        return key_in_hex("--hub-id", given)
    hubs = {one.hub_id for one in settings.streams.routes if one.source == stream}
    if len(hubs) != 1:
        count = "no hub" if not hubs else f"{len(hubs)} hubs"
        raise Refused(f"{count} of the settings has a stream {stream}; name one with --hub-id")
    return hubs.pop()
