"""``veen archive forget``: what only earlier states of an archive stand on."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cli.archive_options import StoreOptions
from cli.console import notice, progress, show
from recorder.archive.forget import Keeping, forgettable
from recorder.archive.forget import forget as forget_states


def forget(
    at: StoreOptions,
    keep: Annotated[
        int,
        typer.Option("--keep", min=1, metavar="N", help="How many states stay, the last one too."),
    ] = 32,
    keep_sec: Annotated[
        int | None,
        typer.Option(
            "--keep-sec", min=0, metavar="SEC", help="Younger ones stay whatever --keep says."
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete; else only tell what would be.")
    ] = False,
) -> None:
    """Delete copies of open chunks and manifests that only earlier states of an archive need.

    Example: veen archive forget --store file:///mnt/archive --keep 32 --delete
    """
    since = None if keep_sec is None else int(time.time()) - keep_sec
    found = forgettable(at.archive(), Keeping(keep, since))
    if delete:
        with progress("forget", "objects") as report:
            forget_states(at.retention(), found, report)
    elif found.keys:
        notice("nothing was deleted: give --delete")
    show(
        {
            "hub_id": found.hub_id.hex(),
            "kept_states": found.kept,
            "earlier_states": found.states,
            "objects": len(found.keys),
            "bytes": found.size,
            "deleted": delete,
        }
    )
