"""``veen resync``, ``verify-state``, ``verify-receipt``: a client's state compared with the
hub's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import manner, notice, progress, show
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
        result = client.resync(stream, epoch=epoch, profile=profile.profile(), progress=report)
    show(
        {
            "stream": stream,
            "label": result.label.hex(),
            "was": result.was.value,
            "from_size": result.from_size,
            "to_size": result.to_size,
            "first_seq": result.first_seq,
            "replayed": result.replayed,
            "checkpoints_checked": result.checkpoints_checked,
        }
    )


def verify_state(
    at: ClientOptions, stream: StreamOption, profile: ProfileOptions, epoch: EpochOption = None
) -> None:
    """Compare the state of a client for a stream with the log of the hub.

    Example: veen verify-state --hub ./hub --client ./me --stream core/main
    """
    with at.open() as client:
        result = client.verify_state(stream, epoch=epoch, profile=profile.profile())
    document: dict[str, Any] = {
        "stream": stream,
        "label": result.label.hex(),
        "consistent": result.consistent,
        "local_seq": result.local_seq,
        "local_root": result.local_root.hex() if result.local_root else None,
        "hub_seq": result.hub_seq,
        "hub_root": result.hub_root.hex() if result.hub_root else None,
        "agrees_to": result.agrees_to,
        "mismatch_at": result.mismatch_at,
        "unlinked": result.unlinked,
    }
    if result.consistent:
        show(document)
    elif manner().json:
        show(document | {"ok": False, "code": "UNTRUSTED", "detail": result.reason})
        raise typer.Exit(INTEGRITY)
    else:
        show(document)
        raise Untrusted(f"{stream}: {result.reason}")


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
    result = Receipt.decode(receipt.read_bytes())
    message = Msg.decode(msg.read_bytes()) if msg is not None else None
    with at.open() as client:
        labels = client.meet().labels(stream, profile.profile())
        near = labels.accepted(result.hub_ts, client.session.limits.max_epoch_skew_sec)
        log = LabelLogRef(labels, stream, near.get(result.label, 0))
        verdict = _verdict(client.session, result, message, log)
    show(
        {
            "stream": stream,
            "label": result.label.hex(),
            "stream_seq": result.stream_seq,
            "msg_id": result.leaf_hash.hex(),
            "mmr_root": result.mmr_root.hex(),
            "hub_ts": result.hub_ts,
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
