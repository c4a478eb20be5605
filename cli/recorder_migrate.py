"""``veen recorder migrate``: record that a stream was renamed or split."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from cli.console import show
from cli.recorder_options import RecorderOptions
from recorder.emit.migration import Migration, record
from recorder.emit.migration import rename as rename_stream
from recorder.emit.migration import split as split_stream
from recorder.stream_map import CHANGES

app = typer.Typer(help="Record renames and splits of streams, as an admin.", no_args_is_help=True)

_ORIGIN: Final = "veen recorder migrate"

FromOption = Annotated[str, typer.Option("--from", metavar="STREAM", help="The old stream.")]
LastSeqOption = Annotated[
    int, typer.Option("--last-seq", min=0, metavar="SEQ", help="Its last place in use; 0: none.")
]


@app.command()
def rename(
    at: RecorderOptions,
    old: FromOption,
    last_seq: LastSeqOption,
    new: Annotated[str, typer.Option("--to", metavar="STREAM", help="The new stream.")],
) -> None:
    """Record that one stream follows another, once the configuration says so.

    Example: veen recorder migrate rename --from record/app/old --to record/app/new --last-seq 812
    """
    settings = at.settings()
    _record(at, rename_stream(settings.streams, old, new, last_seq))


@app.command()
def split(
    at: RecorderOptions,
    old: FromOption,
    last_seq: LastSeqOption,
    new: Annotated[list[str], typer.Option("--to", metavar="STREAM", help="One of the new ones.")],
) -> None:
    """Record that several streams follow one, once the configuration says so.

    Example: veen recorder migrate split --from record/a --to record/b --to record/c --last-seq 812
    """
    settings = at.settings()
    _record(at, split_stream(settings.streams, old, new, last_seq))


def _record(at: RecorderOptions, migration: Migration) -> None:
    with at.emitter(at.settings(), migrates=True) as emitter:
        sent = record(emitter, migration, _ORIGIN)
    show({"stream": CHANGES, "stream_seq": sent.receipt.stream_seq, **migration.payload()})
