"""``veen recorder streams``, ``config`` and ``migrate``: configured streams and their producers.

A migration records that a stream was renamed or split.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from cli.console import show
from cli.recorder_options import RecorderConfigOption, RecorderOptions, refuse_changed_map
from recorder.emit.migration import Migration, record
from recorder.emit.migration import rename as rename_stream
from recorder.emit.migration import split as split_stream
from recorder.settings import DEFAULT_PATH, RecorderSettings, load, refuse_unmapped
from recorder.stream_map import CHANGES
from veen.client.client import Client
from veen.wire.api import RegisterRequest, StreamsResponse

config = typer.Typer(help="Check the configuration of the recorder.", no_args_is_help=True)
_ORIGIN: Final = "veen recorder migrate"


@config.command()
def check(path: RecorderConfigOption = DEFAULT_PATH) -> None:
    """Validate a configuration and show what it means; report the first error.

    Example: veen recorder config check --config recorder.toml
    """
    settings = load(path)
    refuse_unmapped(settings.query.principals)
    refuse_changed_map(settings)
    show(
        {
            "zone": settings.zone,
            "hub_id": settings.hub.hub_id.hex(),
            "profile_id": settings.profile_id().hex(),
            "streams": len(settings.streams.streams),
            "event_types": sum(len(stream.event_types) for stream in settings.streams.streams),
            "admins": [admin.hex() for admin in settings.streams.admins],
            "anchor": settings.anchor.kind,
            "query_principals": [principal.name for principal in settings.query.principals],
        }
    )


def streams(
    at: RecorderOptions,
    register: Annotated[
        bool, typer.Option("--register", help="Register the streams with the hub, as an admin.")
    ] = False,
) -> None:
    """Show the stream of each event type, and which principals may append there.

    With --register, registers the streams with the hub, and prints the commands that issue the
    capabilities. The client must be a principal that manages streams at the hub ([hub] principal).

    Example: veen recorder streams --config recorder.toml
    """
    settings = at.settings()
    document: dict[str, Any] = {
        "profile_id": settings.profile_id().hex(),
        "streams": [_document(settings, stream.name) for stream in settings.streams.streams],
    }
    lines = list(_lines(settings))
    if register:
        with at.open(settings) as client:
            client.meet()
            known = list(_registered(client, settings))
        issue = list(_commands(settings))
        document |= {"registered": known, "issue": issue}
        lines += [f"registered: {name}" for name in known] + issue
    show(document, "\n".join(lines))


def _document(settings: RecorderSettings, name: str) -> dict[str, Any]:
    stream = settings.streams.named(name)
    if stream is None:
        raise KeyError(name)
    writers = [writer.hex() for writer in settings.streams.writers(stream)]
    return stream.document() | {"append": writers}


def _lines(settings: RecorderSettings) -> Iterator[str]:
    for stream in settings.streams.streams:
        writers = settings.streams.writers(stream)
        yield f"{stream.name} (payloads up to {stream.max_payload_bytes} bytes)"
        yield f"  event types: {', '.join(stream.event_types)}"
        names = ", ".join(writer.hex() for writer in writers)
        yield f"  append: {names or 'whoever has a capability'}"


def _registered(client: Client, settings: RecorderSettings) -> Iterator[str]:
    transport = client.session.api.transport
    for stream in settings.streams.streams:
        request = RegisterRequest(name=stream.name)
        transport.post("/tooling/streams", request, StreamsResponse)
        yield stream.name


def _commands(settings: RecorderSettings) -> Iterator[str]:
    """The commands that issue a capability for each producer, over all its streams."""
    granted: dict[bytes, list[str]] = {}
    for stream in settings.streams.streams:
        for writer in settings.streams.writers(stream):
            granted.setdefault(writer, []).append(stream.name)
    for writer, names in granted.items():
        argv = " ".join(f"--stream {shlex.quote(name)}" for name in names)
        yield (
            f"veen cap issue --issuer ISSUER --subject {writer.hex()} {argv} "
            f"--ttl 31536000 --out {writer.hex()[:8]}.cap"
        )


migrate_app = typer.Typer(
    help="Record renames and splits of streams, as an admin.", no_args_is_help=True
)


FromOption = Annotated[str, typer.Option("--from", metavar="STREAM", help="Old stream.")]
LastSeqOption = Annotated[
    int, typer.Option("--last-seq", min=0, metavar="SEQ", help="Its last stream_seq; 0 if empty.")
]


@migrate_app.command()
def rename(
    at: RecorderOptions,
    old: FromOption,
    last_seq: LastSeqOption,
    new: Annotated[str, typer.Option("--to", metavar="STREAM", help="New stream.")],
) -> None:
    """Record that one stream follows another, once the configuration says so.

    Example: veen recorder migrate rename --from record/app/old --to record/app/new --last-seq 812
    """
    settings = at.settings()
    _record(at, rename_stream(settings.streams, old, new, last_seq))


@migrate_app.command()
def split(
    at: RecorderOptions,
    old: FromOption,
    last_seq: LastSeqOption,
    new: Annotated[
        list[str], typer.Option("--to", metavar="STREAM", help="New stream; repeatable.")
    ],
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
