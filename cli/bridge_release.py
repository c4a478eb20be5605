"""``veen bridge release``: take a carrier out of quarantine once its cause is mended."""

from __future__ import annotations

from typing import Annotated

import typer

from bridge.importer.release import release as released
from bridge.importer.run import Order
from bridge.settings import DEFAULT_PATH, load
from cli.bridge_airlock import verify_prefix
from cli.bridge_options import BridgeConfigOption, OperatorOption, operator_of
from cli.console import show
from cli.options import patience, surroundings


def release(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="Its name in quarantine/, or the first 8 digits or more."
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="What was mended; is audited.")
    ],
    config: BridgeConfigOption = DEFAULT_PATH,
    operator: OperatorOption = None,
) -> None:
    """Take a carrier out of quarantine, once the cause that put it there is mended.

    It is verified anew, and it is checked that it can go in now: its stream has a target, the
    bridge a capability, the disk has room. Then it lies in the inbox, and the next veen bridge
    import decides about it as about one that has just come. One that is still refused, or whose
    stream is frozen, stays in quarantine; so does the evidence that a hub signed two histories.

    Example: veen bridge release 4f2a90c1 --config bridge.toml --reason "stream was mapped"
    """
    verify_prefix(bundle)
    order = Order(operator=operator_of(operator), reason=reason)
    found = released(load(config), bundle, order, surroundings(), patience())
    show(
        {
            "bundle_id": found.bundle_id.hex() if found.bundle_id else None,
            "was_quarantined_for": found.code,
            "inbox": list(found.inbox),
            "next": "veen bridge import",
        }
    )
