"""``veen export`` and ``veen import``: a client and what it can prove, to be carried (spec 15)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cli.console import notice, progress, show
from cli.options import ClientOptions, ProfileOptions
from cli.pinned_hub import HubIdentityOption
from veen.client import portable
from veen.identity_file import read_signed


def export(
    at: ClientOptions,
    stream: Annotated[list[str], typer.Option(metavar="NAME", help="A stream; repeatable.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The directory to make.")],
    profile: ProfileOptions,
) -> None:
    """Write a client and its streams, with every proof, to be carried.

    Example: veen export --hub ./hub --client ./me --stream core/main --out ./set
    """
    with at.open() as client:
        if client.session.identity.is_plain:
            notice(f"WARNING: THE KEYS IN {out} ARE NOT PROTECTED")
        with progress("export", "messages") as report:
            found = portable.export(
                client.meet(), stream, out.absolute(), profile=profile.profile(), progress=report
            )
    show({"set": str(out), **asdict(found)})


def import_(
    source: Annotated[Path, typer.Argument(metavar="SET", help="A portable set.")],
    into: Annotated[Path, typer.Option(metavar="DIR", help="Client directory to make or fill.")],
    hub_identity: HubIdentityOption = None,
) -> None:
    """Verify a portable set, and make a client of it or bring one up to it.

    A set brings the hub's identity as it was then: a key retired since is refused only with a
    newer identity, from --hub-identity or from a client that has met the hub.

    Example: veen import ./set --into ./me-again --hub-identity hub-identity.cbor
    """
    known = read_signed(hub_identity).identity if hub_identity is not None else None
    with progress("import", "messages") as report:
        found = portable.import_(source.absolute(), into.absolute(), report, known)
    show({"client": str(into), **asdict(found)})
