"""``veen bridge prove``: what a bridge must keep true, shown claim by claim (AGB0 4.8, 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.prove import Claim
from bridge.prove_directions import SAYS, ZoneActors, prove_directions
from bridge.prove_events import prove_completeness, prove_origins, prove_region
from bridge.prove_evidence import Evidence, OriginKey
from bridge.prove_imports import read_completions
from bridge.prove_read_only import NAME as READ_ONLY_NAME
from bridge.prove_read_only import SAYS as READ_ONLY
from bridge.prove_read_only import prove_read_only
from bridge.prove_traces import chain, prove_traces
from bridge.reconcile.reconcile import reconcile
from bridge.settings import DEFAULT_PATH, Settings, Zone, load
from bridge.trust import TrustStore
from cli.bridge_actors import zone_actors
from cli.bridge_granted import read_granted
from cli.bridge_options import BridgeConfigOption, ZoneKeyOption
from cli.bridge_reading import CarriersOption, collected, reader_of
from cli.console import manner, show
from cli.failure import INTEGRITY, Refused
from hub import settings as hub_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonesOptions:
    """What J3 is judged by: everybody of both zones."""

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
        typer.Option("--event", metavar="NAME=SEQ", help="Show the way of this event of Z1."),
    ] = None,
    carrier: CarriersOption = None,
    key: ZoneKeyOption = None,
) -> None:
    """Prove J1 to J3, K1, K2 and AGB0 4.3, each with what it was judged by.

    Every imported event is read and verified again. J3 and 4.3, that no bridge identity writes in
    Z1, need the settings of both zones' hubs and bridges, with the public cards of their
    identities, and the directories of both hubs, whose control logs tell who was ever let write;
    without them they are untold, which counts as not proven.

    Example: veen bridge prove --online z1.toml --online-hub hub1.toml --offline-hub hub2.toml
    """
    settings = load(config)
    if settings.zone is not Zone.OFFLINE:
        raise Refused("prove runs where events are imported; give the settings of that zone")
    evidence = Evidence(TrustStore.read(settings.trust).hubs)
    with reader_of(settings) as reader:
        found = collected(settings, reader, carrier, key, evidence)
        evidence.completed = read_completions(settings, reader)
    claims = [
        prove_origins(evidence),
        prove_completeness(evidence),
        *_directions(settings, zones),
        prove_traces(evidence, found.facts.entries),
        prove_region(evidence, reconcile(found.facts)),
    ]
    way = _way(evidence, event) if event else None
    _tell_claims(claims, way)


def _directions(settings: Settings, zones: ZonesOptions) -> tuple[Claim, Claim]:
    if zones.online is None or zones.online_hub is None or zones.offline_hub is None:
        return _untold("give --online, --online-hub and --offline-hub")
    there = load(zones.online)
    if there.zone is not Zone.ONLINE:
        raise Refused(f"{zones.online} is not of an online zone")
    logs = [
        zones.online_data or zones.online_hub.absolute().parent / "hub",
        zones.offline_data or zones.offline_hub.absolute().parent / "hub",
    ]
    absent = [str(one) for one in logs if not one.is_dir()]
    if absent:
        return _untold(f"{absent[0]} is not there; give --online-data and --offline-data")
    online = _actors(there, zones.online_hub, logs[0])
    offline = _actors(settings, zones.offline_hub, logs[1])
    return prove_directions(online, offline), prove_read_only(online)


def _untold(told: str) -> tuple[Claim, Claim]:
    return (
        Claim(name="J3", says=SAYS, witness={}, untold=told),
        Claim(name=READ_ONLY_NAME, says=READ_ONLY, witness={}, untold=told),
    )


def _actors(settings: Settings, hub: Path, data: Path) -> ZoneActors:
    granted = read_granted(data, settings.hub.hub_id)
    return zone_actors(settings, hub_settings.load(hub), granted)


def _way(evidence: Evidence, event: str) -> dict[str, Any]:
    name, _, number = event.rpartition("=")
    keys = [
        one
        for one in evidence.events
        if one.stream == name and number.isascii() and number.isdigit() and one.seq == int(number)
    ]
    if not keys:
        raise Refused(f"{event} is not here; see veen bridge reconcile for where it is")
    return chain(evidence, OriginKey(*min(keys)))


def _tell_claims(claims: list[Claim], way: dict[str, Any] | None) -> None:
    holds = all(one.holds for one in claims)
    document = {"ok": holds, "claims": [one.document() for one in claims], "event": way}
    if manner().json:
        show(document)
    else:
        for one in claims:
            show(one.document())
        if way is not None:
            show(way)
    if not holds:
        raise typer.Exit(INTEGRITY)
