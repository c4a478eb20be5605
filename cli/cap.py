"""``veen cap``: issue a capability, make it known to a hub, look at it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.console import show
from cli.options import HubOptions
from cli.passphrase import PassphraseFileOption, passphrase_of
from cli.subject import client_id_of
from veen import durable
from veen.captoken import CapToken
from veen.captoken import issue as issue_token
from veen.errors import Malformed, VeenError
from veen.keystore.directory import ClientDir, Lock
from veen.rate import Rate
from veen.stream import stream_id

app = typer.Typer(help="Capabilities: who may write to which streams.", no_args_is_help=True)

CapOption = Annotated[Path, typer.Option("--cap", metavar="FILE", help="The capability.")]


@app.command()
def issue(
    issuer: Annotated[Path, typer.Option(metavar="DIR", help="Directory of who issues it.")],
    subject: Annotated[
        str, typer.Option(metavar="CARD", help="Who may write: card, directory or client_id.")
    ],
    stream: Annotated[list[str], typer.Option(metavar="NAME", help="A stream; repeatable.")],
    ttl: Annotated[int, typer.Option(min=1, metavar="SEC", help="How long, once authorized.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write it.")],
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
    with Lock(directory):
        key = directory.open(passphrase).id_sign
    token = issue_token(
        key,
        subject_pk=client_id_of(subject),
        stream_ids=[stream_id(name) for name in stream],
        ttl=ttl,
        rate=_rate(rate) if rate is not None else None,
    )
    durable.write(out, token.encode())
    show({**_told(token), "file": str(out)})


@app.command()
def authorize(at: HubOptions, cap: CapOption) -> None:
    """Make a capability known to a hub; its time begins to run. Doing it again changes nothing.

    Example: veen cap authorize --hub ./hub --cap cap.cbor
    """
    token, hub = read_token(cap), at.status().identity()
    with at.open() as api:
        found = api.authorize(token)
    hub.verify_receipt(found.receipt)
    if (found.auth_ref, found.issued_at) != (token.auth_ref(), found.receipt.hub_ts):
        raise Malformed("the hub answered for another capability")
    show(
        {
            "auth_ref": found.auth_ref.hex(),
            "issued_at": found.issued_at,
            "expires_at": found.expires_at,
        }
    )


@app.command("show")
def show_token(cap: CapOption) -> None:
    """Print what a capability says, once its signatures hold; no hub is asked.

    Example: veen cap show --cap cap.cbor
    """
    show(_told(read_token(cap)))


@app.command()
def status(at: HubOptions, cap: CapOption) -> None:
    """Tell whether a hub knows a capability, and until when it holds there.

    Example: veen cap status --hub ./hub --cap cap.cbor
    """
    token = read_token(cap)
    with at.open() as api:
        found = api.capability(token.auth_ref())
    if found.token != token:
        raise Malformed("the hub answered for another capability")
    show(
        {
            "auth_ref": token.auth_ref().hex(),
            "issued_at": found.issued_at,
            "expires_at": found.expires_at,
            "hub_ts": found.hub_ts,
            "expired": found.hub_ts > found.expires_at,
        }
    )


def read_token(path: Path) -> CapToken:
    """A capability from a file, its chain verified."""
    try:
        token = CapToken.decode(path.read_bytes())
        token.verify_chain()
    except VeenError as error:
        raise type(error)(f"{path}: {error}") from error
    return token


def _told(token: CapToken) -> dict[str, Any]:
    rate = token.allow.rate
    return {
        "auth_ref": token.auth_ref().hex(),
        "issuer_pk": token.issuer_pk.hex(),
        "subject_pk": token.subject_pk.hex(),
        "stream_ids": [one.hex() for one in token.allow.stream_ids],
        "ttl": token.allow.ttl,
        "rate": {"per_sec": rate.per_sec, "burst": rate.burst} if rate else None,
    }


def _rate(text: str) -> Rate:
    """Messages a second and burst, as in ``5,10`` or ``5/s,10``."""
    per_sec, _, burst = text.partition(",")
    try:
        return Rate(per_sec=int(per_sec.strip().removesuffix("/s")), burst=int(burst))
    except ValueError:
        raise typer.BadParameter(f'--rate {text!r} is not like "5,10" or "5/s,10"') from None
