"""``veen bridge prove``: the invariants of a bridge, proven claim by claim (AGB0 4.8, 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.prove.claims import (
    DIRECTIONS_SAYS,
    ZoneActors,
    chain,
    prove_completeness,
    prove_directions,
    prove_origins,
    prove_region,
    prove_traces,
)
from bridge.prove.evidence import BridgeClaim, OriginKey, ProofEvidence
from bridge.prove.imports import read_completions
from bridge.prove.read_only import NAME as READ_ONLY_NAME
from bridge.prove.read_only import SAYS as READ_ONLY
from bridge.prove.read_only import prove_read_only
from bridge.reconcile.reconcile import reconcile
from bridge.settings import DEFAULT_PATH, BridgeSettings, BridgeZone, load
from bridge.trust import TrustStore
from cli.bridge_options import BridgeConfigOption, ZoneKeyOption
from cli.bridge_reconcile import CarriersOption, collected, reader_of
from cli.console import global_options, show
from cli.errors import INTEGRITY
from hub import settings as hub_settings
from hub.storage.control_log import read_granted
from veen.errors import Refused
from zone.actors import zone_actors


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonesOptions:
    """The evidence for J3: the actors of both zones."""

    online: Annotated[
        Path | None,
        typer.Option("--online", metavar="FILE", help="The bridge's settings of Z1, for J3."),
    ] = None
    online_hub: Annotated[
        Path | None, typer.Option("--online-hub", metavar="FILE", help="Settings of hub_online.")
    ] = None
    online_data: Annotated[
        Path | None,
        typer.Option("--online-data", metavar="DIR", help="Directory of hub_online, or a copy; "
                     "else hub beside its settings."),
    ] = None  # fmt: skip
    offline_hub: Annotated[
        Path | None, typer.Option("--offline-hub", metavar="FILE", help="Settings of hub_offline.")
    ] = None
    offline_data: Annotated[
        Path | None,
        typer.Option("--offline-data", metavar="DIR", help="Directory of hub_offline; else hub "
                     "beside its settings."),
    ] = None  # fmt: skip


def prove(
    zones: ZonesOptions,
    config: BridgeConfigOption = DEFAULT_PATH,
    event: Annotated[
        str | None,
        typer.Option("--event", metavar="NAME=SEQ", help="Trace this event of Z1."),
    ] = None,
    carrier: CarriersOption = None,
    key: ZoneKeyOption = None,
) -> None:
    """Prove J1 to J3, K1, K2 and AGB0 4.3, each with its evidence.

    Reads and verifies every imported event again. J3 and 4.3, that no bridge identity writes in
    Z1, need the settings of the hubs and bridges of both zones, the public cards of their
    identities, and the data directories of both hubs, whose control logs show who was ever
    authorized; without them both are not covered, which counts as not proven.

    Example: veen bridge prove --online z1.toml --online-hub hub1.toml --offline-hub hub2.toml
    """
    settings = load(config)
    if settings.zone is not BridgeZone.OFFLINE:
        raise Refused("prove runs where events are imported; give the settings of that zone")
    evidence = ProofEvidence(TrustStore.read(settings.trust).hubs)
    with reader_of(settings) as reader:
        facts = collected(settings, reader, carrier, key, evidence)
        evidence.completed = read_completions(settings, reader)
    claims = [
        prove_origins(evidence),
        prove_completeness(evidence),
        *_directions(settings, zones),
        prove_traces(evidence, facts.facts.entries),
        prove_region(evidence, reconcile(facts.facts)),
    ]
    way = _way(evidence, event) if event else None
    _show_claims(claims, way)


def _directions(settings: BridgeSettings, zones: ZonesOptions) -> tuple[BridgeClaim, BridgeClaim]:
    if zones.online is None or zones.online_hub is None or zones.offline_hub is None:
        return _not_covered("give --online, --online-hub and --offline-hub")
    there = load(zones.online)
    if there.zone is not BridgeZone.ONLINE:
        raise Refused(f"{zones.online}: expected the settings of an online zone")
    logs = [
        zones.online_data or zones.online_hub.absolute().parent / "hub",
        zones.offline_data or zones.offline_hub.absolute().parent / "hub",
    ]
    absent = [str(log) for log in logs if not log.is_dir()]
    if absent:
        return _not_covered(f"{absent[0]} is not there; give --online-data and --offline-data")
    online = _actors(there, zones.online_hub, logs[0])
    offline = _actors(settings, zones.offline_hub, logs[1])
    return prove_directions(online, offline), prove_read_only(online)


def _not_covered(value: str) -> tuple[BridgeClaim, BridgeClaim]:
    return (
        BridgeClaim(name="J3", says=DIRECTIONS_SAYS, witness={}, not_covered=value),
        BridgeClaim(name=READ_ONLY_NAME, says=READ_ONLY, witness={}, not_covered=value),
    )


def _actors(settings: BridgeSettings, hub: Path, data: Path) -> ZoneActors:
    granted = read_granted(data, settings.hub.hub_id)
    return zone_actors(settings, hub_settings.load(hub), granted)


def _way(evidence: ProofEvidence, event: str) -> dict[str, Any]:
    name, _, number = event.rpartition("=")
    keys = [
        event
        for event in evidence.events
        if event.stream == name
        and number.isascii()
        and number.isdigit()
        and event.seq == int(number)
    ]
    if not keys:
        raise Refused(f"{event} was not imported here; veen bridge reconcile shows where it is")
    return chain(evidence, OriginKey(*min(keys)))


def _show_claims(claims: list[BridgeClaim], way: dict[str, Any] | None) -> None:
    holds = all(claim.holds for claim in claims)
    document = {"ok": holds, "claims": [claim.document() for claim in claims], "event": way}
    if global_options().json:
        show(document)
    else:
        for claim in claims:
            show(claim.document())
        if way is not None:
            show(way)
    if not holds:
        raise typer.Exit(INTEGRITY)
