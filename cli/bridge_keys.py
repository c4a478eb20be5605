"""``veen bridge keys``: what the other zone has to trust, and what carriers are sealed to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bridge.identities import open_client
from bridge.settings import DEFAULT_PATH, Zone, load
from bridge.trust import TrustStore, pin_exporter, pin_hub
from cli.bridge_options import BridgeConfigOption
from cli.console import show
from cli.failure import Refused
from cli.options import patience, surroundings
from veen import durable, hpke
from veen.keystore.directory import ClientDir

app = typer.Typer(help="Keys of a bridge: show them, hand out trust.", no_args_is_help=True)


@app.command("show")
def show_(config: BridgeConfigOption = DEFAULT_PATH) -> None:
    """Show the public keys of this side, and whom its trust directory names.

    Example: veen bridge keys show --config bridge.toml
    """
    settings = load(config)
    card = ClientDir(settings.bridge.client).read_card()
    store = TrustStore.read(settings.trust) if settings.trust.is_dir() else TrustStore()
    show(
        {
            "zone": settings.name,
            "hub_id": settings.hub.hub_id.hex(),
            "bridge_id": card.id_sign.hex(),
            "client_id": card.client_id.hex(),
            "trusted_hubs": sorted(one.hex() for one in store.hubs),
            "trusted_exporters": sorted(
                f"{name} {public.hex()}" for public, name in store.exporters.items()
            ),
        }
    )


@app.command("export-trust")
def export_trust(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write the files.")],
    config: BridgeConfigOption = DEFAULT_PATH,
) -> None:
    """Write what the other zone must trust: the hub's identity and the exporter's key.

    Carry the files by a way you trust, compare hub_id and bridge_id by voice or on paper, and put
    them into the trust directory of the offline zone. No secret is in them.

    Example: veen bridge keys export-trust --config bridge.toml --out trust-of-plant-1
    """
    settings = load(config)
    if settings.zone is not Zone.ONLINE:
        raise Refused("only an online zone exports; run this with its settings")
    with open_client(
        settings.hub, settings.bridge, surroundings=surroundings(), patience=patience()
    ) as client:
        hub = client.meet().hub
        signature = client.session.api.status().identity_sig
        public = client.session.identity.id_sign.public
    durable.make_directory(out)
    pin_hub(out, hub, signature)
    pin_exporter(out, settings.name, public)
    show(
        {
            "hub_id": hub.hub_id.hex(),
            "bridge_id": public.hex(),
            "files": sorted(str(one) for one in out.iterdir()),
        }
    )


@app.command()
def zone(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to keep the secret.")],
) -> None:
    """Make a key that carriers can be sealed to; run it in the offline zone.

    The file stays there ([import] zone_keys). The public key that is printed goes to the online
    zone ([export] recipient).

    Example: veen bridge keys zone --out zone.key
    """
    if out.exists():
        raise Refused(f"{out} exists; a key is never overwritten")
    private = surroundings().random(32)
    durable.write(out.absolute(), private.hex().encode() + b"\n")
    show({"recipient": hpke.public_key(private).hex(), "file": str(out)})
