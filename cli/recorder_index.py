"""``veen recorder index``: follow, rebuild and verify the recorder's index."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.trust import TrustStore
from cli.console import global_options, notice, progress, show
from cli.errors import INTEGRITY
from cli.recorder_options import RecorderConfigOption
from cli.recorder_replay import ReaderOptions
from recorder.index import imports as subscriptions
from recorder.index import rebuild as rebuilding
from recorder.index.follower import BatchOpener, Follower, opening
from recorder.index.imports import Imports
from recorder.index.reader import status as status_of
from recorder.index.rebuild import Compared
from recorder.index.tables import IndexBusy, IndexHome
from recorder.index.writer import writing
from recorder.settings import DEFAULT_PATH, load
from veen.client.client import Client
from veen.errors import Untrusted
from zone.imports import take_up

app = typer.Typer(help="Manage the index that answers queries.", no_args_is_help=True)

IndexOption = Annotated[
    Path | None,
    typer.Option(
        "--index", metavar="DIR", help="Index directory; default: [index] of the settings."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """The index, its streams, and the number of processes that open events."""

    index: IndexOption = None
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", metavar="NAME", help="Stream; repeatable. Default: all."),
    ] = None
    openers: Annotated[
        int,
        typer.Option(
            "--openers", min=0, max=64, metavar="N", help="Number of processes that decrypt."
        ),
    ] = 1

    def home(self, config: Path) -> IndexHome:
        return home_of(self.index, config)

    def take_up(self, config: Path) -> None:
        """Follow the zone's imports if the index is that of the settings."""
        if self.index is None:
            take_up(config)

    def requested(self) -> frozenset[str] | None:
        return frozenset(self.stream) if self.stream else None

    @contextmanager
    def opener(self, client: Client) -> Iterator[BatchOpener]:
        session = client.session
        with opening(session.identity.readers(), session.limits, self.openers) as openers:
            yield openers


def home_of(index: Path | None, config: Path) -> IndexHome:
    return IndexHome((index or load(config).index).absolute())


@app.command()
def follow(
    at: ReaderOptions,
    options: FollowOptions,
    once: Annotated[
        bool, typer.Option("--once", help="Exit when the index has caught up.")
    ] = False,
) -> None:
    """Follow the streams of the recorder, verify them and update the index.

    Waits for a hub that is down. Stops at a hub that contradicts itself, and stores the evidence.
    It may be stopped or killed at any time, and resumes exactly where it stopped.

    Example: veen recorder index follow --config recorder.toml
    """
    home = options.home(at.config)
    options.take_up(at.config)
    with at.open() as client, home.locked(), options.opener(client) as opener:
        hub_id = b"" if home.exists() else client.meet().hub.hub_id
        with writing(rebuilding.create(home, hub_id)) as writer:
            streams = load(at.config).streams if at.config.exists() else None
            follower = Follower(client, writer, opener, options.requested(), streams)
            if not once:
                notice(f"following into {home.root}; stop with Ctrl-C")
                follower.run(lambda: False)
            while follower.round():
                pass
    show(status_of(home, int(time.time())).document())


@app.command()
def imports(
    at: ReaderOptions,
    stream: Annotated[
        list[str],
        typer.Option("--stream", metavar="NAME", help="import/ stream; repeatable."),
    ],
    trust: Annotated[
        Path, typer.Option("--trust", metavar="DIR", help="Pinned hubs of the other zone.")
    ],
    index: IndexOption = None,
) -> None:
    """Index imported events, by their position here and at their origin.

    Queries can then name the import stream, and veen query replay can run a query of the other
    zone again. An offline zone does this by itself for everything that its bridge imports. A
    stream of the origin is indexed up to the first event that is missing here. From then on follow
    and rebuild include these streams. Run it again to pin newer keys of a hub.

    Example: veen recorder index imports --stream import/plant-1/changes --trust trust
    """
    home = home_of(index, at.config)
    expected = subscriptions.read_import(home).joined(stream, TrustStore.read(trust).hubs)
    subscriptions.store_import(home, expected)
    try:
        indexed = _taken_up(at, home, expected)
    except IndexBusy:
        show({"indexed": None}, "the process that follows the index takes them up now")
    else:
        show({"indexed": indexed}, f"{indexed} events indexed")


def _taken_up(at: ReaderOptions, home: IndexHome, imports: Imports) -> int:
    with home.locked(), at.open() as client:
        hub_id = b"" if home.exists() else client.meet().hub.hub_id
        with writing(rebuilding.create(home, hub_id)) as writer:
            return imports.follower(client, writer).round()


@app.command()
def status(config: RecorderConfigOption = DEFAULT_PATH, index: IndexOption = None) -> None:
    """Show the lag of the index behind the hub, in entries and seconds, and its faults.

    Example: veen recorder index status --config recorder.toml
    """
    show(status_of(home_of(index, config), int(time.time())).document())


@app.command()
def rebuild(at: ReaderOptions, options: FollowOptions) -> None:
    """Rebuild the index from the log, and replace the old one atomically.

    Reports whether the two agreed. Queries continue meanwhile; stop the follower first.

    Example: veen recorder index rebuild --config recorder.toml
    """
    home = options.home(at.config)
    options.take_up(at.config)
    with (
        at.open() as client,
        home.locked(),
        options.opener(client) as opener,
        progress("rebuild", "entries") as report,
    ):
        rebuilt = rebuilding.rebuild(home, client, opener, options.requested(), report)
    compared = rebuilt.compared
    document: dict[str, Any] = {"index": str(home.root), "entries": rebuilt.entries}
    if compared is None:
        show(document | {"agreed": None})
    else:
        show(document | _describe(compared))


@app.command()
def verify(at: ReaderOptions, options: FollowOptions) -> None:
    """Compare every row and node of the index with the log, which is read again.

    Example: veen recorder index verify --config recorder.toml
    """
    home = options.home(at.config)
    with (
        at.open() as client,
        home.locked(),
        options.opener(client) as opener,
        progress("verify", "entries") as report,
    ):
        compared = rebuilding.verify(home, client, opener, options.requested(), report)
    show({"index": str(home.root), **_describe(compared)})
    if compared.differences and global_options().json:
        raise typer.Exit(INTEGRITY)
    if compared.differences:
        difference = compared.differences[0]
        raise Untrusted(
            f"the index differs from the log, first at {difference.stream}, "
            f"stream_seq {difference.seq}: "
            "rebuild it with veen recorder index rebuild"
        )


def _describe(compared: Compared) -> dict[str, Any]:
    return {
        "agreed": not compared.differences,
        "compared": compared.entries,
        "differences": [difference._asdict() for difference in compared.differences],
    }
