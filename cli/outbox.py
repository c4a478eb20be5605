"""``veen outbox``: what a client still has to send."""

from __future__ import annotations

import typer

from cli.console import progress, show
from cli.options import ClientOptions

app = typer.Typer(help="What was queued and is still to be sent.", no_args_is_help=True)


@app.command("show")
def show_pending(at: ClientOptions) -> None:
    """Tell how many events wait to be sent to a hub.

    Example: veen outbox show --hub ./hub --client ./me
    """
    with at.open() as client:
        show({"pending": client.pending()})


@app.command()
def flush(at: ClientOptions) -> None:
    """Send what waits, once and in order; run it again after a failure.

    Example: veen outbox flush --hub ./hub --client ./me
    """
    with at.open() as client:
        with progress("flush", "events") as report:
            found = client.flush(report)
        late = [
            {"event_id": one.event_id, "stream_seq": one.receipt.stream_seq} for one in found.late
        ]
        show({"landed": found.landed, "pending": client.pending(), "late": late})
