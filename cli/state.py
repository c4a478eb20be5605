"""``veen resync``, ``verify-state``, ``verify-receipt``: a client's state compared with the
hub's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import global_options, notice, progress, show
from cli.errors import INTEGRITY
from cli.options import ClientOptions, ProfileOptions, StreamOption
from veen.client.log_head import LabelLogRef
from veen.client.receipts import ReceiptVerdict, verify_with_hub
from veen.client.receipts import verify_receipt as offline
from veen.client.session import Session
from veen.client.transport import HubRefused
from veen.errors import Untrusted
from veen.msg import Msg
from veen.receipt import Receipt

EpochOption = Annotated[
    int | None, typer.Option("--epoch", min=0, metavar="N", help="Epoch; default: the current one.")
]


def resync(
    at: ClientOptions, stream: StreamOption, profile: ProfileOptions, epoch: EpochOption = None
) -> None:
    """Update the state of a client for a stream from the log of the hub.

    Example: veen resync --hub ./hub --client ./me --stream core/main
    """
    with at.open() as client, progress("resync", "messages") as report:
        resynced = client.resync(stream, epoch=epoch, profile=profile.profile(), progress=report)
    show(
        {
            "stream": stream,
            "label": resynced.label.hex(),
            "was": resynced.was.value,
            "from_size": resynced.from_size,
            "to_size": resynced.to_size,
            "first_seq": resynced.first_seq,
            "replayed": resynced.replayed,
            "checkpoints_checked": resynced.checkpoints_checked,
        }
    )


def verify_state(
    at: ClientOptions, stream: StreamOption, profile: ProfileOptions, epoch: EpochOption = None
) -> None:
    """Compare the state of a client for a stream with the log of the hub.

    Example: veen verify-state --hub ./hub --client ./me --stream core/main
    """
    with at.open() as client:
        comparison = client.verify_state(stream, epoch=epoch, profile=profile.profile())
    document: dict[str, Any] = {
        "stream": stream,
        "label": comparison.label.hex(),
        "consistent": comparison.consistent,
        "local_seq": comparison.local_seq,
        "local_root": comparison.local_root.hex() if comparison.local_root else None,
        "hub_seq": comparison.hub_seq,
        "hub_root": comparison.hub_root.hex() if comparison.hub_root else None,
        "agrees_to": comparison.agrees_to,
        "mismatch_at": comparison.mismatch_at,
        "unlinked": comparison.unlinked,
    }
    if comparison.consistent:
        show(document)
    elif global_options().json:
        show(document | {"ok": False, "code": "UNTRUSTED", "detail": comparison.reason})
        raise typer.Exit(INTEGRITY)
    else:
        show(document)
        raise Untrusted(f"{stream}: {comparison.reason}")


def verify_receipt(
    at: ClientOptions,
    receipt: Annotated[Path, typer.Option(metavar="FILE", help="Receipt file.")],
    stream: StreamOption,
    profile: ProfileOptions,
    msg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Message file of the receipt.")
    ] = None,
) -> None:
    """Verify a receipt against its hub, stream and message.

    Example: veen verify-receipt --hub ./hub --client ./me --stream core/main --receipt r.cbor
    """
    decoded = Receipt.decode(receipt.read_bytes())
    message = Msg.decode(msg.read_bytes()) if msg is not None else None
    with at.open() as client:
        labels = client.meet().labels(stream, profile.profile())
        near = labels.accepted(decoded.hub_ts, client.session.limits.max_epoch_skew_sec)
        log = LabelLogRef(labels, stream, near.get(decoded.label, 0))
        verdict = _verdict(client.session, decoded, message, log)
    show(
        {
            "stream": stream,
            "label": decoded.label.hex(),
            "stream_seq": decoded.stream_seq,
            "msg_id": decoded.leaf_hash.hex(),
            "mmr_root": decoded.mmr_root.hex(),
            "hub_ts": decoded.hub_ts,
            "checked": ", ".join(verdict.checked),
            "head_seq": verdict.head_seq,
        }
    )


def _verdict(
    session: Session, receipt: Receipt, msg: Msg | None, log: LabelLogRef
) -> ReceiptVerdict:
    """The verification with the hub's proofs, or without them if the client may not read."""
    try:
        return verify_with_hub(session, receipt, msg, log)
    except HubRefused as error:
        if not error.is_about_access:
            raise
        notice(f"{error}: the root was not checked against the log")
        return offline(receipt, msg, session.hub, log.labels)
