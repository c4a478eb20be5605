"""``veen bridge keys``: what the other zone has to trust, and keys for encrypted carriers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from bridge.connect import open_bridge_client
from bridge.errors import printable
from bridge.settings import DEFAULT_PATH, BridgeZone, load
from bridge.trust import (
    TrustChange,
    TrustStore,
    enter,
    exporter_line,
    hub_line,
    pin_exporter,
    pin_hub,
    revoke,
    revoked_line,
    signature_of,
)
from cli.bridge_options import BridgeConfigOption, OperatorOption, operator_of
from cli.console import show
from cli.options import retry_policy, runtime
from veen.crypto import hpke_public_key
from veen.errors import Refused
from veen.keystore.directory import ClientDir
from veen.system import durable

TrustOption = Annotated[
    Path, typer.Option("--trust", metavar="DIR", help="Trust directory of this zone.")
]
_HEX: Final = re.compile(r"[0-9a-f]{64}")

app = typer.Typer(help="Manage the keys and the trust of a bridge.", no_args_is_help=True)


@app.command("show")
def show_(config: BridgeConfigOption = DEFAULT_PATH) -> None:
    """Show the public keys of this zone, and the contents of its trust directory.

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
            "trusted_hubs": sorted(hub.hex() for hub in store.hubs),
            "trusted_exporters": sorted(
                f"{name} {public.hex()}" for public, name in store.exporters.items()
            ),
            "revoked": sorted(f"{what.hex()} {why}" for what, why in store.revoked.items()),
        }
    )


@app.command("export-trust")
def export_trust(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Output directory.")],
    config: BridgeConfigOption = DEFAULT_PATH,
) -> None:
    """Export what the other zone must trust: hub identity and exporter key.

    Transfer the files over a trusted channel, pin them there with veen bridge keys pin, and
    compare hub_id and bridge_id by voice or on paper. They contain no secret.

    Example: veen bridge keys export-trust --config bridge.toml --out trust-of-plant-1
    """
    settings = load(config)
    if settings.zone is not BridgeZone.ONLINE:
        raise Refused("only an online zone exports; run this with its settings")
    with open_bridge_client(
        settings.hub, settings.bridge, runtime=runtime(), retry_policy=retry_policy()
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
            "files": sorted(str(path) for path in out.iterdir()),
        }
    )


@app.command()
def pin(
    handed: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory that export-trust wrote in the other zone."),
    ],
    trust: TrustOption,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Name of the exporter; default: that in the files."
        ),
    ] = None,
    operator: OperatorOption = None,
) -> None:
    """Pin the hub and the exporter from files of the other zone.

    Compare the output with that of export-trust in the other zone. Newer keys of a hub are added;
    an older identity is refused. The key of an exporter name never changes: pin a new key under
    another --name, and revoke the old one. Every change is written to changes.txt of the trust
    directory, and the next import records it in the audit log.

    Example: veen bridge keys pin trust-of-plant-1 --trust trust
    """
    store = TrustStore.read(handed)
    if not store.hubs and not store.exporters:
        raise Refused(f"{handed} holds no hub and no exporter; see veen bridge keys export-trust")
    if name is not None and len(store.exporters) > 1:
        raise Refused(
            f"{handed} holds {len(store.exporters)} exporters: leave out --name, which is for a "
            "single one"
        )
    durable.make_directory(trust)
    done = []
    for item in _pinned(store, handed, trust, name):
        _enter(trust, operator, f"pinned {item}")
        done.append(item)
    show({"pinned": done}, "\n".join(f"pinned {item}" for item in done) or "nothing new")


def _pinned(store: TrustStore, handed: Path, trust: Path, name: str | None) -> Iterator[str]:
    """Pin each file; return what changed."""
    for hub_id, hub in store.hubs.items():
        if pin_hub(trust, hub, signature_of(handed, hub_id)):
            yield hub_line(hub)
    for public, given in store.exporters.items():
        if pin_exporter(trust, name or given, public):
            yield exporter_line(name or given, public)


@app.command("revoke")
def revoke_(
    what: Annotated[str, typer.Argument(metavar="HEX", help="hub_id or public key.")],
    trust: TrustOption,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason; stored in changes.txt.")
    ],
    operator: OperatorOption = None,
) -> None:
    """Revoke a hub, a key of a hub or an exporter key, for old carriers too.

    Use it for stolen keys. A hub that rotated its key needs no revocation of the old one. The
    change is written to changes.txt, and the next import records it in the audit log.

    Example: veen bridge keys revoke 11... --trust trust --reason "stolen, case 12"
    """
    if not _HEX.fullmatch(what):
        raise typer.BadParameter(f"{what!r}: expected 64 hex digits; see veen bridge keys show")
    if not trust.is_dir():
        raise Refused(f"{trust} is not a directory; give the trust directory of this zone")
    revoke(trust, bytes.fromhex(what), printable(reason))
    _enter(trust, operator, revoked_line(bytes.fromhex(what), printable(reason)))
    show({"revoked": what, "reason": printable(reason)})


def _enter(trust: Path, operator: str | None, change: str) -> None:
    """Enter a change in the trust directory, with time and operator."""
    who = printable(operator_of(operator)).replace(": ", ":")
    enter(trust, TrustChange(runtime().clock(), who, change))


@app.command()
def zone(
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Output file of the private key.")
    ],
) -> None:
    """Create a key to seal carriers to; run it in the offline zone.

    Keep the file in the offline zone ([import] zone_keys). Copy the printed public key to the
    online zone ([export] recipient).

    Example: veen bridge keys zone --out zone.key
    """
    if out.exists():
        raise Refused(f"{out} exists; a key is never overwritten")
    private = runtime().random(32)
    durable.write(out.absolute(), private.hex().encode() + b"\n")
    show({"recipient": hpke_public_key(private).hex(), "file": str(out)})
