"""``veen cap``: issue a capability, authorize it at a hub, show it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import show
from cli.options import HubOptions, PassphraseFileOption, client_id_of, passphrase_of
from veen.captoken import CapToken, Rate, read_token
from veen.captoken import issue as issue_token
from veen.errors import Malformed
from veen.keystore.directory import ClientDir, ClientDirLock
from veen.label import stream_id
from veen.system import durable

app = typer.Typer(help="Manage capabilities: who may write to which streams.", no_args_is_help=True)

CapOption = Annotated[Path, typer.Option("--cap", metavar="FILE", help="The capability.")]


@app.command()
def issue(
    issuer: Annotated[Path, typer.Option(metavar="DIR", help="Client directory of the issuer.")],
    subject: Annotated[
        str, typer.Option(metavar="CARD", help="Writer: card, directory or client_id.")
    ],
    stream: Annotated[list[str], typer.Option(metavar="NAME", help="Stream; repeatable.")],
    ttl: Annotated[
        int, typer.Option(min=1, metavar="SEC", help="Lifetime once authorized, in seconds.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file.")],
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help='Messages a second and burst: "5,10".')
    ] = None,
    passphrase_file: PassphraseFileOption = None,
) -> None:
    """Issue a capability, signed with the issuer's id_sign key.

    Example: veen cap issue --issuer ./admin --subject ./me --stream core/main --ttl 60 --out cap
    """
    directory = ClientDir(issuer.absolute())
    passphrase = passphrase_of(directory, passphrase_file)
    with ClientDirLock(directory):
        key = directory.open(passphrase).id_sign
    token = issue_token(
        key,
        subject_pk=client_id_of(subject),
        stream_ids=[stream_id(name) for name in stream],
        ttl=ttl,
        rate=_rate(rate) if rate is not None else None,
    )
    durable.write(out, token.encode())
    show({**_describe(token), "file": str(out)})


@app.command()
def authorize(at: HubOptions, cap: CapOption) -> None:
    """Register a capability with a hub, which starts its lifetime; idempotent.

    Example: veen cap authorize --hub ./hub --cap cap.cbor
    """
    token, hub = read_token(cap), at.status().identity()
    with at.open() as api:
        authorized = api.authorize(token)
    hub.verify_receipt(authorized.receipt)
    if (authorized.auth_ref, authorized.issued_at) != (token.auth_ref(), authorized.receipt.hub_ts):
        raise Malformed("the hub responded with another capability than requested")
    show(
        {
            "auth_ref": authorized.auth_ref.hex(),
            "issued_at": authorized.issued_at,
            "expires_at": authorized.expires_at,
        }
    )


@app.command("show")
def show_token(cap: CapOption) -> None:
    """Verify and show a capability, without a hub.

    Example: veen cap show --cap cap.cbor
    """
    show(_describe(read_token(cap)))


@app.command()
def status(at: HubOptions, cap: CapOption) -> None:
    """Show whether a hub knows a capability, and when it expires there.

    Example: veen cap status --hub ./hub --cap cap.cbor
    """
    token = read_token(cap)
    with at.open() as api:
        status_ = api.capability(token.auth_ref())
    if status_.token != token:
        raise Malformed("the hub responded with another capability than requested")
    show(
        {
            "auth_ref": token.auth_ref().hex(),
            "issued_at": status_.issued_at,
            "expires_at": status_.expires_at,
            "hub_ts": status_.hub_ts,
            "expired": status_.hub_ts > status_.expires_at,
        }
    )


def _describe(token: CapToken) -> dict[str, Any]:
    rate = token.allow.rate
    return {
        "auth_ref": token.auth_ref().hex(),
        "issuer_pk": token.issuer_pk.hex(),
        "subject_pk": token.subject_pk.hex(),
        "stream_ids": [stream_id_.hex() for stream_id_ in token.allow.stream_ids],
        "ttl": token.allow.ttl,
        "rate": {"per_sec": rate.per_sec, "burst": rate.burst} if rate else None,
    }


def _rate(text: str) -> Rate:
    """A rate of messages per second and a burst, as in ``5,10`` or ``5/s,10``."""
    per_sec, _, burst = text.partition(",")
    try:
        return Rate(per_sec=int(per_sec.strip().removesuffix("/s")), burst=int(burst))
    except ValueError:
        raise typer.BadParameter(
            f'--rate {text!r}: expected RATE,BURST, like "5,10" or "5/s,10"'
        ) from None
