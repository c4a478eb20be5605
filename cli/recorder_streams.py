"""``veen recorder streams`` and ``config``: what is configured, and who may append where."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from cli.console import show
from cli.recorder_options import RecorderConfigOption, RecorderOptions, refuse_changed_map
from recorder.settings import DEFAULT_PATH, Settings, load
from recorder.settings_query import refuse_unmapped
from veen.client.client import Client
from veen.tooling import RegisterRequest, StreamsResponse

config = typer.Typer(help="The recorder's configuration.", no_args_is_help=True)


@config.command()
def check(path: RecorderConfigOption = DEFAULT_PATH) -> None:
    """Read a configuration and say what it means; the first thing wrong with it is named.

    Example: veen recorder config check --config recorder.toml
    """
    found = load(path)
    refuse_unmapped(found.query.principals)
    refuse_changed_map(found)
    show(
        {
            "zone": found.zone,
            "hub_id": found.hub.hub_id.hex(),
            "profile_id": found.profile_id().hex(),
            "streams": len(found.streams.streams),
            "event_types": sum(len(one.event_types) for one in found.streams.streams),
            "admins": [one.hex() for one in found.streams.admins],
            "anchor": found.anchor.kind,
            "query_principals": [one.name for one in found.query.principals],
        }
    )


def streams(
    at: RecorderOptions,
    register: Annotated[
        bool, typer.Option("--register", help="Make the streams known to the hub, as an admin.")
    ] = False,
) -> None:
    """Show which event type goes to which stream, and which principals may append there.

    With --register the hub learns their names, and the commands that issue the capabilities are
    printed. The client must be a principal of the hub that manages streams ([hub] principal).

    Example: veen recorder streams --config recorder.toml
    """
    settings = at.settings()
    document: dict[str, Any] = {
        "profile_id": settings.profile_id().hex(),
        "streams": [_document(settings, one.name) for one in settings.streams.streams],
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


def _document(settings: Settings, name: str) -> dict[str, Any]:
    stream = settings.streams.named(name)
    if stream is None:
        raise KeyError(name)
    writers = [one.hex() for one in settings.streams.writers(stream)]
    return stream.document() | {"append": writers}


def _lines(settings: Settings) -> Iterator[str]:
    for stream in settings.streams.streams:
        writers = settings.streams.writers(stream)
        yield f"{stream.name} (payloads up to {stream.max_payload_bytes} bytes)"
        yield f"  event types: {', '.join(stream.event_types)}"
        yield f"  append: {', '.join(one.hex() for one in writers) or 'whoever has a capability'}"


def _registered(client: Client, settings: Settings) -> Iterator[str]:
    transport = client.session.api.transport
    for stream in settings.streams.streams:
        request = RegisterRequest(name=stream.name)
        transport.post("/tooling/streams", request, StreamsResponse)
        yield stream.name


def _commands(settings: Settings) -> Iterator[str]:
    """One capability for each principal, over all that it may append to."""
    granted: dict[bytes, list[str]] = {}
    for stream in settings.streams.streams:
        for writer in settings.streams.writers(stream):
            granted.setdefault(writer, []).append(stream.name)
    for writer, names in granted.items():
        words = " ".join(f"--stream {shlex.quote(name)}" for name in names)
        yield (
            f"veen cap issue --issuer ISSUER --subject {writer.hex()} {words} "
            f"--ttl 31536000 --out {writer.hex()[:8]}.cap"
        )
