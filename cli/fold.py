"""``veen fold``: what an archived stream has come to, by one of the overlays."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from cli.archive_options import StoreOptions
from cli.console import show
from cli.fold_options import Folder, FoldOptions
from cli.options import ProfileOptions, key_in_hex
from recorder.folds.job import FoldResult
from veen.overlay.overlay import Folded
from veen.overlay.registry import OVERLAYS, overlay_named
from veen.overlay.snapshot import state_hash


def fold(
    overlay: Annotated[
        str,
        typer.Argument(metavar="OVERLAY", help=", ".join(one.name for one in OVERLAYS)),
    ],
    at: StoreOptions,
    options: FoldOptions,
    profile: ProfileOptions,
    from_seq: Annotated[
        int, typer.Option("--from", min=1, metavar="N", help="The first stream_seq.")
    ] = 1,
    to_seq: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", help="The last; else all there is.")
    ] = None,
    account: Annotated[
        str | None,
        typer.Option("--account", metavar="HEX", help="Show this account, or other key, alone."),
    ] = None,
    drop_summaries: Annotated[
        bool, typer.Option("--drop-summaries", help="Delete those that were kept, first.")
    ] = False,
) -> None:
    """Fold the events of an archived stream into a state, the same for everyone.

    Example: veen fold wallet.ledger --store file:///mnt/archive --stream pay/main --client ./me
    """
    overlay_named(overlay)
    part = key_in_hex("--account", account) if account else None
    folder = Folder(at=at, options=options, profile=profile, archive=options.archive(at))
    wanted = replace(options.wanted(overlay, profile), from_seq=from_seq, to_seq=to_seq)
    job = wanted.job(folder.archive)
    if drop_summaries:
        folder.drop_summaries(job.label)
    show(_told(options.stream, folder.fold(job), part))


def _told(stream: str, result: FoldResult, part: bytes | None) -> dict[str, Any]:
    overlay, folded = result.known(), result.opened()
    state = folded.state if part is None else overlay.part(folded.state, part)
    shown = overlay.state(Folded(state, folded.skipped))
    return {
        "stream": stream,
        "overlay": result.overlay,
        "label": result.label.hex(),
        "from": result.from_seq,
        "to": result.to_seq,
        "mmr_root": result.mmr_root.hex(),
        "receipt": result.anchor.object_hash.hex(),
        "digest": result.digest().hex(),
        "state_hash": state_hash(result.overlay, state.encode()).hex(),
        "skipped": {reason: places["count"] for reason, places in shown["skipped"].items()},
        "first_skipped": {reason: places["first"] for reason, places in shown["skipped"].items()},
        "state": shown["state"],
    }
