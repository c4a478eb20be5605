"""``veen hub``, what a running hub tells: who it is, what it can do, how it fares."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli import metrics as hub_metrics
from cli.console import manner, notice, show, show_text
from cli.failure import REFUSED
from cli.hub import app
from cli.options import HubOptions, patience, tls
from veen import durable
from veen.client.address import resolve
from veen.client.errors import HubRefused
from veen.client.session import skew_warning
from veen.client.tls_info import tls_info as look_at_tls
from veen.errors import Code
from veen.tooling import HealthResponse, ReadyResponse

__all__ = ["app"]

_TOLD: Final = ("disk_free_bytes", "disk_days_left", "hub_time_ahead_sec", "warnings")
_OVERLAYS: Final = ("fed1", "auth1", "kex1_plus", "sh1_plus", "lclass0", "meta0_plus")


@app.command()
def status(at: HubOptions) -> None:
    """Print what a running hub says of itself: name, keys, limits, readiness.

    Example: veen hub status --hub http://127.0.0.1:8080
    """
    found, ready = at.status(), _readiness(at)
    del ready["ok"]
    if (warning := skew_warning(found.hub_ts - int(time.time()))) is not None:
        notice(f"WARNING: {warning}")
    show(found.to_json() | ready)


@app.command()
def key(
    at: HubOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the identity here, for --hub-identity."),
    ] = None,
) -> None:
    """Print the hub's name and the keys it signs with; pin the name out of band.

    Example: veen hub key --hub ./hub --out hub-identity.cbor
    """
    status = at.status()
    if out is not None:
        durable.write(out.absolute().with_suffix(".sig"), status.identity_sig)
        durable.write(out.absolute(), status.identity().encode())
    found = status.to_json()
    show({name: found[name] for name in ("hub_id", "hub_pk", "hub_keys")})


@app.command()
def profile(at: HubOptions) -> None:
    """Print which version, profile and features of the protocol a hub has.

    Example: veen hub profile --hub http://127.0.0.1:8080
    """
    try:
        found = at.status()
    except HubRefused as error:
        if error.code != Code.NOT_FOUND.value:
            raise
        raise HubRefused("E.PROFILE", "the hub tells no profile", {}, None) from error
    overlays = {name: name in found.features for name in _OVERLAYS}
    show(
        {
            "version": f"veen-{found.server_version}",
            "profile_id": found.profile_ids[0].hex(),
            "hub_id": found.hub_id.hex(),
            "features": {"core": True, **overlays} | dict.fromkeys(found.features, True),
        }
    )


@app.command()
def health(at: HubOptions) -> None:
    """Tell whether the hub takes messages, and where its latest label stands.

    Exit code 4 says that it is up and takes none: its disk is full, its clock stepped ahead, or
    its sequencer is away. ok is also false while hub time stands still for a clock that is behind.

    Example: veen hub health --hub http://127.0.0.1:8080
    """
    with at.open() as api:
        found = api.transport.get("/healthz", HealthResponse).to_json()
    ready = _readiness(at)
    show(found | ready | {"ok": found["ok"] and ready["ok"]})
    if not ready["ready"]:
        raise typer.Exit(REFUSED)


def _readiness(at: HubOptions) -> dict[str, Any]:
    """What ``/readyz`` says, be it a refusal; what a hub does not tell is left out."""
    try:
        with at.open(once=True) as api:
            found = api.transport.get("/readyz", ReadyResponse).to_json()
    except HubRefused as error:
        return {"ready": False, "ok": False, "not_ready": error.message}
    kept = {key: found[key] for key in _TOLD if key in found}
    return {"ready": True, "ok": found["ok"]} | kept


@app.command()
def metrics(
    at: HubOptions,
    raw: Annotated[bool, typer.Option("--raw", help="Prometheus' text form, as it is.")] = False,
) -> None:
    """Print the hub's counters, and its latencies as count, mean and p95.

    Example: veen hub metrics --hub http://127.0.0.1:8080
    """
    text = hub_metrics.fetch(
        resolve(at.hub).url,
        credentials=at.credentials(),
        tls=tls(at.ca),
        timeout_sec=patience().timeout_sec,
    )
    if raw and not manner().json:
        show_text(text.splitlines())
    else:
        show({"metrics": text} if raw else hub_metrics.summary(text))


@app.command("tls-info")
def tls_info(at: HubOptions) -> None:
    """Print how a hub's connection is protected, and when its certificate ends.

    Example: veen hub tls-info --hub https://hub.example:8443 --ca ca.pem
    """
    address = resolve(at.hub)
    found = look_at_tls(address.url, tls(at.ca), patience().timeout_sec)
    show(
        {
            "url": address.url,
            "version": found.version,
            "cipher": found.cipher,
            "aead": found.is_aead,
            "compression": found.compression,
            "subject": found.subject,
            "issuer": found.issuer,
            "not_after": found.not_after,
        }
    )
