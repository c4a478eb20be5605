"""``veen send``: seal a body to its reader, send it, and have the receipt verified."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.cap import read_token
from cli.console import show
from cli.options import ClientOptions, ProfileOptions, StreamOption, key_in_hex
from cli.subject import recipient_of
from veen import durable, json_body
from veen.attachment import coid
from veen.client.sending import BYTES_SCHEMA, Sent
from veen.errors import Malformed
from veen.stream import stream_id

JSON_SCHEMA: Final = stream_id("veen.json.v1")
"""The schema of a body that is JSON and says no more of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOptions:
    """What is said, and in which form."""

    body: Annotated[
        str | None, typer.Option("--body", metavar="JSON", help="What to say; - is stdin.")
    ] = None
    body_file: Annotated[
        Path | None, typer.Option("--body-file", metavar="FILE", help="The body from a file.")
    ] = None
    raw: Annotated[bool, typer.Option("--raw", help="Bytes as they are, not JSON.")] = False

    def encode(self) -> bytes:
        content = self._content()
        try:
            return content if self.raw else json_body.encode(content)
        except Malformed as error:
            raise typer.BadParameter(f"the body is {error}; --raw sends it as it is") from error

    def _content(self) -> bytes:
        if (self.body is None) == (self.body_file is None):
            raise typer.BadParameter("give one of --body JSON, --body - and --body-file FILE")
        if self.body_file is not None:
            return self.body_file.read_bytes()
        return sys.stdin.buffer.read() if self.body == "-" else os.fsencode(self.body or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventOptions:
    """What goes with a body."""

    schema: Annotated[
        str | None, typer.Option("--schema", metavar="NAME", help="Kind of body: name or hash.")
    ] = None
    to: Annotated[
        str | None, typer.Option("--to", metavar="CARD", help="Who may read it; else ourselves.")
    ] = None
    parent_id: Annotated[
        str | None, typer.Option("--parent-id", metavar="HEX", help="The msg_id it answers.")
    ] = None
    expires_at: Annotated[
        int | None, typer.Option("--expires-at", min=0, metavar="TIME", help="In Unix time.")
    ] = None
    attach: Annotated[
        list[Path] | None, typer.Option("--attach", metavar="FILE", help="A file; repeatable.")
    ] = None
    cap: Annotated[
        Path | None, typer.Option("--cap", metavar="FILE", help="The capability to write with.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The same, as ``Client.send`` takes it."""
        return {
            "schema": stream_id(self.schema) if self.schema else JSON_SCHEMA,
            "recipient": recipient_of(self.to) if self.to else None,
            "parent_id": key_in_hex("--parent-id", self.parent_id) if self.parent_id else None,
            "expires_at": self.expires_at,
            "attachments": [one.read_bytes() for one in self.attach or ()],
            "capability": read_token(self.cap) if self.cap else None,
        }


def send(
    at: ClientOptions,
    stream: StreamOption,
    body: BodyOptions,
    event: EventOptions,
    profile: ProfileOptions,
    queue: Annotated[bool, typer.Option("--queue", help="Keep it for veen outbox flush.")] = False,
    dump_msg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the MSG here.")
    ] = None,
    dump_receipt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the RECEIPT here.")
    ] = None,
) -> None:
    """Send an encrypted message to a stream, and verify the hub's receipt for it.

    Example: veen send --hub ./hub --client ./me --stream core/main --body '{"text": "hello"}'
    """
    if queue and (dump_msg or dump_receipt):
        raise typer.BadParameter("--queue has no message and no receipt to dump yet")
    content, arguments = body.encode(), event.arguments()
    if body.raw and event.schema is None:
        arguments["schema"] = BYTES_SCHEMA
    with at.open() as client:
        if queue:
            number = client.emit(stream, content, profile=profile.profile(), **arguments)
            show({"event_id": number, "stream": stream, "pending": client.pending()})
            return
        sent = client.send(stream, content, profile=profile.profile(), **arguments)
    if dump_msg is not None:
        durable.write(dump_msg, sent.msg.encode())
    if dump_receipt is not None:
        durable.write(dump_receipt, sent.receipt.encode())
    show(_told(stream, sent))


def _told(stream: str, sent: Sent) -> dict[str, Any]:
    receipt = sent.receipt
    found: dict[str, Any] = {
        "stream": stream,
        "stream_seq": receipt.stream_seq,
        "msg_id": receipt.leaf_hash.hex(),
        "mmr_root": receipt.mmr_root.hex(),
        "hub_ts": receipt.hub_ts,
        "client_seq": sent.msg.client_seq,
        "proved_to": sent.size,
    }
    if sent.attachments:
        found["attachments"] = [
            {"index": index, "coid": coid(one).hex()} for index, one in enumerate(sent.attachments)
        ]
    return found
