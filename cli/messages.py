"""Commands of a client: ``veen send``, ``stream``, ``outbox``, ``attachment``, ``export``,
``import``.

Export and import are of a portable set with all proofs (spec 15).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.console import notice, progress, show, show_one
from cli.hub_checkpoint import HubIdentityOption
from cli.options import (
    ClientOption,
    ClientOptions,
    PassphraseFileOption,
    ProfileOptions,
    StreamOption,
    key_in_hex,
    passphrase_of,
    recipient_of,
)
from veen.captoken import read_token
from veen.client import portable
from veen.client.client import Client
from veen.client.log_head import Pair
from veen.client.outbox import BYTES_SCHEMA, SentEvent
from veen.client.sealer import verify_files
from veen.errors import Malformed, Refused, Undecryptable, Unopenable
from veen.identity_store import read_signed
from veen.keystore.directory import ClientDir, ClientDirLock
from veen.label import Profile, stream_id
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import Opened, attachment_coid, open_with_any
from veen.system import durable
from veen.timestamp import readable_time
from veen.wire.canonical_json import cbor_to_json, json_to_cbor

attachment_app = typer.Typer(
    help="Verify files that were sent with a message.", no_args_is_help=True
)
JSON_SCHEMA: Final = stream_id("veen.json.v1")
"""The default schema of a JSON body."""


@attachment_app.command()
def verify(
    msg: Annotated[Path, typer.Option(metavar="FILE", help="Message file (send --dump-msg).")],
    client: ClientOption,
    file: Annotated[list[Path], typer.Option(metavar="FILE", help="Attachment; repeatable.")],
    profile: ProfileOptions,
    index: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Index of each file, if not in order."),
    ] = None,
    passphrase_file: PassphraseFileOption = None,
) -> None:
    """Verify that files are the attachments of a message, complete and in order.

    Example: veen attachment verify --msg msg.cbor --client ./me --file a.bin --file b.bin
    """
    files = _in_place(file, index or list(range(len(file))))
    directory, limits = ClientDir(client.absolute()), Limits()
    passphrase = passphrase_of(directory, passphrase_file)
    with ClientDirLock(directory):
        keys = list(directory.open(passphrase).readers())
    decoded = Msg.decode(msg.read_bytes())
    opened = open_with_any(keys, decoded, profile.profile(), limits)
    coids = verify_files(opened, [file.read_bytes() for file in files], limits)
    show(
        {
            "msg_id": decoded.leaf_hash().hex(),
            "att_root": opened.header.att_root.hex() if opened.header.att_root else None,
            "attachments": [
                {"index": place, "file": str(file), "coid": coid.hex()}
                for place, (file, coid) in enumerate(zip(files, coids, strict=True))
            ],
        }
    )


def _in_place(files: list[Path], places: list[int]) -> list[Path]:
    """Verify attachments; the root commits to all of them, so that none may be missing."""
    if sorted(places) != list(range(len(files))):
        raise typer.BadParameter(
            f"--index {places} for {len(files)} files: expected each index from 0 on once, "
            "because the root covers all attachments of the message."
        )
    return [files[places.index(place)] for place in range(len(files))]


outbox_app = typer.Typer(help="Show and send queued messages.", no_args_is_help=True)


@outbox_app.command("show")
def show_pending(at: ClientOptions) -> None:
    """Show how many events wait in the outbox of a hub.

    Example: veen outbox show --hub ./hub --client ./me
    """
    with at.open() as client:
        show({"pending": client.pending()})


@outbox_app.command()
def flush(at: ClientOptions) -> None:
    """Send queued events, once each and in order; idempotent, retry after a failure.

    Example: veen outbox flush --hub ./hub --client ./me
    """
    with at.open() as client:
        with progress("flush", "events") as report:
            sent = client.flush(report)
        late = [
            {"event_id": late.event_id, "stream_seq": late.receipt.stream_seq} for late in sent.late
        ]
        show({"acknowledged": sent.acknowledged, "pending": client.pending(), "late": late})


def export(
    at: ClientOptions,
    stream: Annotated[list[str], typer.Option(metavar="NAME", help="Stream; repeatable.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory to create.")],
    profile: ProfileOptions,
) -> None:
    """Export a client and its streams, with all proofs, to a portable set.

    Example: veen export --hub ./hub --client ./me --stream core/main --out ./set
    """
    with at.open() as client:
        if client.session.identity.is_plain:
            notice(f"WARNING: THE KEYS IN {out} ARE NOT PROTECTED")
        with progress("export", "messages") as report:
            exported = portable.export(
                client.meet(), stream, out.absolute(), profile=profile.profile(), progress=report
            )
    show({"set": str(out), **asdict(exported)})


def import_(
    source: Annotated[Path, typer.Argument(metavar="SET", help="Portable set.")],
    into: Annotated[
        Path, typer.Option(metavar="DIR", help="Client directory to create or update.")
    ],
    hub_identity: HubIdentityOption = None,
) -> None:
    """Verify a portable set, and create or update a client from it.

    A set contains the hub identity of its time: a key that was retired later is refused only with
    a newer identity, from --hub-identity or from a client that has met the hub.

    Example: veen import ./set --into ./me-again --hub-identity hub-identity.cbor
    """
    known = read_signed(hub_identity).identity if hub_identity is not None else None
    with progress("import", "messages") as report:
        imported = portable.import_(source.absolute(), into.absolute(), report, known)
    show({"client": str(into), **asdict(imported)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyOptions:
    """The body of a message, and its form."""

    body: Annotated[
        str | None, typer.Option("--body", metavar="JSON", help="JSON body; - reads stdin.")
    ] = None
    body_file: Annotated[
        Path | None, typer.Option("--body-file", metavar="FILE", help="Read the body from a file.")
    ] = None
    raw: Annotated[bool, typer.Option("--raw", help="Send raw bytes, not JSON.")] = False

    def encode(self) -> bytes:
        content = self._content()
        try:
            return content if self.raw else json_to_cbor(content)
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
    """What is sent with a body."""

    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="NAME", help="Schema of the body: name or hash."),
    ] = None
    to: Annotated[
        str | None, typer.Option("--to", metavar="CARD", help="Recipient; default: this identity.")
    ] = None
    parent_id: Annotated[
        str | None,
        typer.Option("--parent-id", metavar="HEX", help="msg_id of the message it replies to."),
    ] = None
    expires_at: Annotated[
        int | None,
        typer.Option("--expires-at", min=0, metavar="TIME", help="Expiry, in Unix time."),
    ] = None
    attach: Annotated[
        list[Path] | None,
        typer.Option("--attach", metavar="FILE", help="File to attach; repeatable."),
    ] = None
    cap: Annotated[
        Path | None, typer.Option("--cap", metavar="FILE", help="Capability to write with.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of ``Client.send``."""
        return {
            "schema": stream_id(self.schema) if self.schema else JSON_SCHEMA,
            "recipient": recipient_of(self.to) if self.to else None,
            "parent_id": key_in_hex("--parent-id", self.parent_id) if self.parent_id else None,
            "expires_at": self.expires_at,
            "attachments": [item.read_bytes() for item in self.attach or ()],
            "capability": read_token(self.cap) if self.cap else None,
        }


def send(
    at: ClientOptions,
    stream: StreamOption,
    body: BodyOptions,
    event: EventOptions,
    profile: ProfileOptions,
    queue: Annotated[bool, typer.Option("--queue", help="Queue it for veen outbox flush.")] = False,
    dump_msg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the MSG to this file.")
    ] = None,
    dump_receipt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the RECEIPT to this file.")
    ] = None,
) -> None:
    """Send an encrypted message to a stream, and verify the hub's receipt for it.

    Example: veen send --hub ./hub --client ./me --stream core/main --body '{"text": "hello"}'
    """
    if queue and (dump_msg or dump_receipt):
        raise typer.BadParameter("--queue excludes --dump-msg and --dump-receipt")
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
    show(_format_sent(stream, sent))


def _format_sent(stream: str, sent: SentEvent) -> dict[str, Any]:
    receipt = sent.receipt
    shown: dict[str, Any] = {
        "stream": stream,
        "stream_seq": receipt.stream_seq,
        "msg_id": receipt.leaf_hash.hex(),
        "mmr_root": receipt.mmr_root.hex(),
        "hub_ts": receipt.hub_ts,
        "client_seq": sent.msg.client_seq,
        "proved_to": sent.size,
    }
    if sent.attachments:
        shown["attachments"] = [
            {"index": index, "coid": attachment_coid(attachment).hex()}
            for index, attachment in enumerate(sent.attachments)
        ]
    return shown


class UnknownStream(Refused):
    """A stream that the hub does not know."""


def stream(
    at: ClientOptions,
    stream: StreamOption,
    profile: ProfileOptions,
    from_seq: Annotated[
        int, typer.Option("--from", min=0, metavar="SEQ", help="First stream_seq.")
    ] = 1,
    to_seq: Annotated[
        int | None,
        typer.Option("--to", min=1, metavar="SEQ", help="Last stream_seq; default: the head."),
    ] = None,
    with_proof: Annotated[
        bool, typer.Option("--with-proof", help="Request a proof for each page.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new messages until interrupted.")
    ] = False,
    no_decrypt: Annotated[
        bool, typer.Option("--no-decrypt", help="Verify only, without decrypting.")
    ] = False,
) -> None:
    """Read a stream, verify every message, and decrypt those for this identity.

    Example: veen stream --hub ./hub --client ./me --stream core/main --from 1
    """
    if follow and (to_seq is not None or with_proof):
        raise typer.BadParameter("--follow excludes --to and --with-proof")
    rules = profile.profile()
    with at.open() as client, progress("stream", "messages") as report:
        pairs = (
            client.follow(stream, from_seq=from_seq, profile=rules)
            if follow
            else client.read(
                stream, from_seq=from_seq, to_seq=to_seq, with_proof=with_proof, profile=rules
            )
        )
        done = 0
        for done, pair in enumerate(pairs, 1):
            message = _format_message(pair) | ({} if no_decrypt else _opened(client, pair, rules))
            show_one(message, _text(message))
            sys.stdout.flush()
            report(done, to_seq)
        if not done and not client.knows(stream, rules):
            raise UnknownStream(
                f"stream {stream}: no messages; the hub does not know it: check --stream and --hub"
            )


def _format_message(pair: Pair) -> dict[str, Any]:
    msg, receipt = pair.msg, pair.receipt
    return {
        "stream_seq": receipt.stream_seq,
        "msg_id": receipt.leaf_hash.hex(),
        "label": receipt.label.hex(),
        "client_id": msg.client_id.hex(),
        "client_seq": msg.client_seq,
        "auth_ref": msg.auth_ref.hex() if msg.auth_ref else None,
        "hub_ts": receipt.hub_ts,
        "mmr_root": receipt.mmr_root.hex(),
    }


def _opened(client: Client, pair: Pair, profile: Profile) -> dict[str, Any]:
    try:
        payload = client.open_payload(pair.msg, profile)
    except Undecryptable:
        return {"opened": False}
    except Unopenable as error:
        return {"opened": False, "reason": str(error)}
    return {"opened": True, "header": payload.header.to_json(), **_body(payload)}


def _body(opened: Opened) -> dict[str, Any]:
    try:
        return {"body": cbor_to_json(opened.body)}
    except Malformed:
        return {"body_hex": opened.body.hex()}


def _text(document: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{document['stream_seq']} {document['msg_id']} "
        f"from {document['client_id']} at {readable_time(document['hub_ts'])}"
    )
    if document.get("opened") is False:
        reason = document.get("reason")
        yield f"  cannot be opened: {reason}" if reason else "  sealed to another recipient"
    for name, value in document.get("header", {}).items():
        yield f"  {name}: {readable_time(value) if name == 'expires_at' else value}"
    if "body" in document:
        yield f"  body: {json.dumps(document['body'], sort_keys=True, ensure_ascii=False)}"
    if "body_hex" in document:
        yield f"  body in hex: {document['body_hex']}"
