"""``veen stream``: read a stream, every message and receipt verified, and open what is ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from cli.console import progress, show_one
from cli.failure import Refused
from cli.options import ClientOptions, ProfileOptions, StreamOption
from veen import json_body
from veen.client.client import Client
from veen.client.pair import Pair
from veen.errors import Malformed, Undecryptable, Unopenable
from veen.profile import Profile
from veen.seal import Opened


class UnknownStream(Refused):
    """A stream that the hub neither lists nor has entries of."""


def stream(
    at: ClientOptions,
    stream: StreamOption,
    profile: ProfileOptions,
    from_seq: Annotated[int, typer.Option("--from", min=0, metavar="SEQ", help="Begin here.")] = 1,
    to_seq: Annotated[
        int | None, typer.Option("--to", min=1, metavar="SEQ", help="End here, not at the head.")
    ] = None,
    with_proof: Annotated[
        bool, typer.Option("--with-proof", help="Have each page proved as well.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for more, until interrupted.")
    ] = False,
    no_decrypt: Annotated[
        bool, typer.Option("--no-decrypt", help="Verify only; open nothing.")
    ] = False,
) -> None:
    """Read a stream, verify every message, and open what is sealed to us.

    Example: veen stream --hub ./hub --client ./me --stream core/main --from 1
    """
    if follow and (to_seq is not None or with_proof):
        raise typer.BadParameter("--follow goes with neither --to nor --with-proof")
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
            found = _told(pair) | ({} if no_decrypt else _opened(client, pair, rules))
            show_one(found, _text(found))
            sys.stdout.flush()
            report(done, to_seq)
        if not done and not client.knows(stream, rules):
            raise UnknownStream(
                f"stream {stream}: no messages; the hub does not know it: check --stream and --hub"
            )


def _told(pair: Pair) -> dict[str, Any]:
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
        found = client.open_payload(pair.msg, profile)
    except Undecryptable:
        return {"opened": False}
    except Unopenable as error:
        return {"opened": False, "reason": str(error)}
    return {"opened": True, "header": found.header.to_json(), **_body(found)}


def _body(found: Opened) -> dict[str, Any]:
    try:
        return {"body": json_body.decode(found.body)}
    except Malformed:
        return {"body_hex": found.body.hex()}


def _text(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['stream_seq']} {found['msg_id']} from {found['client_id']} at {found['hub_ts']}"
    if found.get("opened") is False:
        reason = found.get("reason")
        yield f"  cannot be opened: {reason}" if reason else "  sealed to somebody else"
    for name, value in found.get("header", {}).items():
        yield f"  {name}: {value}"
    if "body" in found:
        yield f"  body: {json.dumps(found['body'], sort_keys=True, ensure_ascii=False)}"
    if "body_hex" in found:
        yield f"  body in hex: {found['body_hex']}"
