"""``veen hub``, commands for a running hub: its identity, profile, status and health (OBS0.1)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.console import notice, show
from cli.errors import REFUSED
from cli.options import HubOptions, retry_policy, tls
from veen.client.session import skew_warning
from veen.client.transport import HubRefused, resolve_address
from veen.client.transport import tls_info as look_at_tls
from veen.errors import Code
from veen.system import durable
from veen.wire.api import HealthResponse, ReadyResponse

_READY_FIELDS: Final = ("disk_free_bytes", "disk_days_left", "hub_time_ahead_sec", "warnings")
_OVERLAYS: Final = ("fed1", "auth1", "kex1_plus", "sh1_plus", "lclass0", "meta0_plus")


def status(at: HubOptions) -> None:
    """Show the hub_id, keys, limits and readiness of a running hub.

    Example: veen hub status --hub http://127.0.0.1:8080
    """
    status_, ready = at.status(), _readiness(at)
    del ready["ok"]
    if (warning := skew_warning(status_.hub_ts - int(time.time()))) is not None:
        notice(f"WARNING: {warning}")
    show(status_.to_json() | ready)


def key(
    at: HubOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the identity to this file, for --hub-identity."
        ),
    ] = None,
) -> None:
    """Show the hub_id and the signing keys of a hub; pin the hub_id out of band.

    Example: veen hub key --hub ./hub --out hub-identity.cbor
    """
    status = at.status()
    if out is not None:
        durable.write(out.absolute().with_suffix(".sig"), status.identity_sig)
        durable.write(out.absolute(), status.identity().encode())
    identity = status.to_json()
    show({name: identity[name] for name in ("hub_id", "hub_pk", "hub_keys")})


def profile(at: HubOptions) -> None:
    """Show the protocol version, profile and features of a hub.

    Example: veen hub profile --hub http://127.0.0.1:8080
    """
    try:
        status = at.status()
    except HubRefused as error:
        if error.code != Code.NOT_FOUND.value:
            raise
        raise HubRefused("E.PROFILE", "the hub reports no profile", {}, None) from error
    overlays = {name: name in status.features for name in _OVERLAYS}
    show(
        {
            "version": f"veen-{status.server_version}",
            "profile_id": status.profile_ids[0].hex(),
            "hub_id": status.hub_id.hex(),
            "features": {"core": True, **overlays} | dict.fromkeys(status.features, True),
        }
    )


def health(at: HubOptions) -> None:
    """Show whether the hub accepts messages, and the head of its latest label.

    Exits with 4 if the hub runs but accepts no messages: its disk is full, its clock stepped
    ahead, or its sequencer is down. ok is also false while hub time waits for a clock that is
    behind.

    Example: veen hub health --hub http://127.0.0.1:8080
    """
    with at.open() as api:
        health_document = api.transport.get("/healthz", HealthResponse).to_json()
    ready = _readiness(at)
    show(health_document | ready | {"ok": health_document["ok"] and ready["ok"]})
    if not ready["ready"]:
        raise typer.Exit(REFUSED)


def _readiness(at: HubOptions) -> dict[str, Any]:
    """The answer of ``/readyz``, also if the hub is not ready; absent fields are omitted."""
    try:
        with at.open(once=True) as api:
            document = api.transport.get("/readyz", ReadyResponse).to_json()
    except HubRefused as error:
        return {"ready": False, "ok": False, "not_ready": error.message}
    details = {key: document[key] for key in _READY_FIELDS if key in document}
    return {"ready": True, "ok": document["ok"]} | details


def tls_info(at: HubOptions) -> None:
    """Show the TLS parameters of a hub, and when its certificate expires.

    Example: veen hub tls-info --hub https://hub.example:8443 --ca ca.pem
    """
    address = resolve_address(at.hub)
    connection = look_at_tls(address.url, tls(at.ca), retry_policy().timeout_sec)
    show(
        {
            "url": address.url,
            "version": connection.version,
            "cipher": connection.cipher,
            "aead": connection.is_aead,
            "compression": connection.compression,
            "subject": connection.subject,
            "issuer": connection.issuer,
            "not_after": connection.not_after,
        }
    )
