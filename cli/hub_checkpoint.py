"""``veen hub``, the commands for a checkpoint: fetch and verify it, check its witnesses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.console import progress, show
from cli.hub_directory import app
from cli.options import StreamOption, key_in_hex
from cli.pinned_hub import PinnedHubOptions
from veen.checkpoint import Checkpoint
from veen.client.checkpoint_root import signed_receipt, verify_recomputed
from veen.client.hub_api import HubApi
from veen.client.pair import Log
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.label import EpochLabels, routing_key
from veen.profile import DEFAULT_PROFILE
from veen.stream import stream_id

__all__ = ["app"]


@app.command()
def checkpoint(
    at: PinnedHubOptions,
    stream: StreamOption,
    upto: Annotated[
        int, typer.Option("--upto", min=1, metavar="SEQ", help="The place it ends at.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the CHECKPOINT here.")
    ] = None,
) -> None:
    """Have a checkpoint made (or fetch it) and verify it for a pinned hub.

    The hub is pinned by --hub-id, --hub-identity, --client, or by naming its data directory. The
    root is computed again from every message up to SEQ, so it takes as long as reading them. While
    two hub keys overlap, the witness signatures of both are required. It works for streams without
    epochs.

    Example: veen hub checkpoint --hub ./hub --stream record/line-1 --upto 10 --out cp.cbor
    """
    with at.open() as api:
        status = at.pinned_status(api)
        hub = status.identity()
        labels = EpochLabels(routing_key(hub.hub_id), stream_id(stream), DEFAULT_PROFILE)
        log = Log(labels, stream, 0)
        found = _verified(api, log, hub, upto)
        with progress("verify", "messages") as report:
            count = verify_recomputed(api, log, hub, found, report)
    if out is not None:
        out.write_bytes(found.encode())
    show(
        {
            "label": log.label.hex(),
            "upto_seq": found.upto_seq,
            "mmr_root": found.mmr_root.hex(),
            "epoch": found.epoch,
            "hub_id": hub.hub_id.hex(),
            "recomputed_from": count,
        }
    )


def _verified(api: HubApi, log: Log, hub: HubIdentity, upto: int) -> Checkpoint:
    """The checkpoint, bound to the receipt at its upto_seq."""
    found = api.checkpoint(log.label, upto)
    if (found.label_curr, found.upto_seq) != (log.label, upto):
        raise Untrusted(
            f"{log.at(upto)}: expected a checkpoint of label {log.label.hex()} up to {upto}, got "
            f"one of {found.label_curr.hex()} up to {found.upto_seq}"
        )
    found.verify_labels(log.labels)
    receipt = signed_receipt(api, log, hub, upto)
    # Asked after the checkpoint was made: it is not from later than this.
    now = api.status().hub_ts
    hub.verify_checkpoint(
        found, log.labels.profile, not_before=receipt.hub_ts, not_after=max(now, receipt.hub_ts)
    )
    if found.mmr_root != receipt.mmr_root:
        raise Untrusted(f"{log.at(upto)}: the checkpoint has another root than the receipt")
    return found


@app.command("verify-rotation")
def verify_rotation(
    checkpoint: Annotated[
        Path, typer.Option("--checkpoint", metavar="FILE", help="A checkpoint of the hub.")
    ],
    old_key: Annotated[str, typer.Option(metavar="HEX", help="The old hub_pk.")],
    new_key: Annotated[str, typer.Option(metavar="HEX", help="The new hub_pk.")],
) -> None:
    """Check that a checkpoint of the overlap is witnessed by both keys.

    Example: veen hub verify-rotation --checkpoint cp.cbor --old-key d36a… --new-key efb3…
    """
    found = Checkpoint.decode(checkpoint.read_bytes())
    for name, public in (("old", old_key), ("new", new_key)):
        if not found.is_witnessed_by(key_in_hex(f"--{name}-key", public)):
            raise Untrusted(f"{checkpoint.name} is not witnessed by the {name} key")
    if not found.is_signed_by(key_in_hex("--new-key", new_key)):
        raise Untrusted(f"{checkpoint.name} is not signed by the new key")
    show(
        {"checkpoint": str(checkpoint), "upto_seq": found.upto_seq},
        f"{checkpoint.name}: signed by the new key, witnessed by both",
    )
