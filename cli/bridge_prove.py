"""``veen bridge prove``: the invariants of a bridge, proven claim by claim (AGB0 4.8, 5.2).

J3 needs everybody who can act in a zone: from the settings of its hub and its bridge, and from its
hub's control log, which has every capability that was ever authorized.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bridge.prove.claims import (
    DIRECTIONS_SAYS,
    EVERYTHING,
    Actor,
    ActorRole,
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
from bridge.settings import DEFAULT_PATH, BridgeSettings, BridgeZone, IdentitySettings, load
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG
from bridge.trust import TrustStore
from cli.bridge_options import BridgeConfigOption, ZoneKeyOption
from cli.bridge_reconcile import CarriersOption, collected, reader_of
from cli.console import manner, show
from cli.errors import INTEGRITY
from hub import settings as hub_settings
from hub.policy import PolicyPrincipal
from hub.settings import HubSettings
from hub.storage import identity
from hub.storage.datadir import DataDir
from hub.storage.label_log import LocatedEntry, whole_entries
from veen.audit.context import take_inventory
from veen.captoken import CapToken, read_token
from veen.errors import Refused, Untrusted
from veen.hub_identity import HubIdentity
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.label import stream_id
from veen.limits import Limits
from veen.log import layout
from veen.log.entry import STREAM, ControlRecord, control_label
from veen.log.layout import ChunkName, OpenChunkName
from veen.mmr import EMPTY, Peaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """Every capability that was ever authorized, from a log of ``entries`` with ``root``."""

    entries: int
    root: bytes
    tokens: tuple[CapToken, ...]
    streams: tuple[str, ...]


def read_granted(data: Path, hub_id: bytes) -> Granted:
    """The control log of a hub, whole and as the hub has signed it, or Untrusted.

    ``data`` is the hub's directory or a copy of it; the hub may be running.
    """
    datadir = DataDir(data.absolute())
    hub = identity.read_identity(datadir)
    if hub.hub_id != hub_id:
        raise Untrusted(f"{data}: expected hub {hub_id.hex()}, got hub {hub.hub_id.hex()}")
    peaks: Peaks = EMPTY
    records = []
    for entry in _entries(datadir, control_label(hub_id)):
        msg, receipt = entry.entry.msg(), entry.entry.receipt()
        peaks = peaks.append(msg.leaf_hash())
        if (receipt.leaf_hash, receipt.mmr_root) != (msg.leaf_hash(), peaks.root()):
            raise Untrusted(
                f"{data}: entry {peaks.size} of the control log does not match its signed root"
            )
        hub.verify_receipt(receipt)
        _verify_own(hub, msg.client_id, receipt.hub_ts)
        records.append(ControlRecord.of(msg))
    tokens = [record.token() for record in records]
    named = [record.streams()[0].name for record in records if record.kind == STREAM]
    return Granted(
        entries=peaks.size,
        root=peaks.root() if peaks.size else bytes(32),
        tokens=tuple(token for token in tokens if token is not None),
        streams=tuple(named),
    )


def _verify_own(hub: HubIdentity, client_id: bytes, hub_ts: int) -> None:
    if client_id not in {
        hub_key.hub_pk for hub_key in hub.hub_keys if hub_key.overlaps(hub_ts, hub_ts)
    }:
        raise Untrusted(
            f"control log: expected entries of the hub, got one of client {client_id.hex()}"
        )


def _entries(datadir: DataDir, label: bytes) -> Iterator[LocatedEntry]:
    inventory = take_inventory(f"log/{path.name}" for path in datadir.log.iterdir()).of(label)
    reached = 0
    for segment in inventory.segments():
        if segment.start_seq <= reached:
            # A sealed chunk that is not renamed yet.
            continue
        if segment.start_seq != reached + 1:
            raise Untrusted(f"{datadir.root}: the control log lacks {reached + 1} and what follows")
        for item in _of_segment(datadir, segment):
            reached = item.header.stream_seq
            yield item
        if isinstance(segment, ChunkName) and reached != segment.end_seq:
            raise Untrusted(f"{datadir.root}: the control log is damaged at {reached + 1}")


def _of_segment(datadir: DataDir, segment: ChunkName | OpenChunkName) -> Iterator[LocatedEntry]:
    is_sealed = isinstance(segment, ChunkName)
    name = layout.chunk(segment) if isinstance(segment, ChunkName) else layout.open_chunk(segment)
    try:
        raw = datadir.file(name).read_bytes()
    except FileNotFoundError as error:
        detail = "was sealed meanwhile; run it again" if not is_sealed else "is missing"
        raise Untrusted(f"{datadir.root}: {name} {detail}") from error
    return whole_entries(raw, segment.label, segment.start_seq, Limits())


def zone_actors(settings: BridgeSettings, hub: HubSettings, granted: Granted) -> ZoneActors:
    """All actors: principals, issuers, subjects of capabilities, and identities of the bridge."""
    known = {stream_id(stream): stream for stream in (*_streams(settings, hub), *granted.streams)}
    bridge = list(_bridge_actors(settings, hub, known))
    mine = frozenset().union(*(actor.secrets for actor in bridge))
    others = [
        _principal(principal)
        for principal in hub.policy.principals
        if not _secrets(principal) & mine
    ]
    issuers = hub.issuers | {token.issuer_pk for token in granted.tokens}
    return ZoneActors(
        hub_id=settings.hub.hub_id,
        url=settings.hub.url,
        is_gated=hub.gated,
        actors=(
            *_with_grants([*bridge, *others], granted, known),
            *(_issuer(issuer) for issuer in sorted(issuers)),
        ),
        control_entries=granted.entries,
        control_root=granted.root,
        exported=settings.streams.sources(settings.hub.hub_id),
    )


def _with_grants(
    actors: list[Actor], granted: Granted, known: Mapping[bytes, str]
) -> Iterator[Actor]:
    """Actors with the streams of their capabilities, then subjects known from a capability only."""
    writes: dict[bytes, set[str]] = defaultdict(set)
    for token in granted.tokens:
        writes[token.subject_pk] |= set(_names(token, known))
    for actor in actors:
        more = [name for key in actor.secrets for name in writes.pop(key, ())]
        yield replace(actor, writes=tuple(sorted({*actor.writes, *more})))
    for key, names in sorted(writes.items()):
        yield Actor(
            name=f"holder {key.hex()[:16]} of a capability",
            part=ActorRole.SUBJECT,
            secrets=frozenset([key]),
            writes=tuple(sorted(names)),
        )


def _bridge_actors(
    settings: BridgeSettings, hub: HubSettings, known: Mapping[bytes, str]
) -> Iterator[Actor]:
    for part, configured in (
        (ActorRole.BRIDGE, settings.bridge),
        (ActorRole.AUDIT, settings.audit),
        (ActorRole.READER, settings.reader),
    ):
        if configured is not None:
            yield _identity(f"{settings.name} {part.value}", part, configured, hub, known)
    if settings.reader_keys is not None:
        keys = IdentitySettings(
            client=settings.reader_keys.client,
            passphrase_file=None,
            principal=None,
            capability=None,
        )
        yield _identity(f"{settings.name} reader keys", ActorRole.READER, keys, hub, known)


def _identity(
    name: str,
    part: ActorRole,
    identity: IdentitySettings,
    hub: HubSettings,
    known: Mapping[bytes, str],
) -> Actor:
    card = read_card(ClientDir(identity.client).card)
    secrets = frozenset([card.id_sign, card.id_dh, card.client_id])
    # It may be several principals: by each of its keys, and by its login name.
    matched = [
        principal
        for principal in hub.policy.principals
        if _secrets(principal) & secrets or principal.name == identity.principal
    ]
    granted = _names(read_token(identity.capability), known) if identity.capability else ()
    reads = sorted({pattern for item in matched for pattern in item.read})
    writes = {pattern for item in matched for pattern in item.write}
    return Actor(
        name=name,
        part=part,
        secrets=secrets.union(*map(_secrets, matched)),
        reads=(EVERYTHING,) if hub.reads == "open" else tuple(reads),
        writes=tuple(sorted({*writes, *granted})),
    )


def _names(token: CapToken, known: Mapping[bytes, str]) -> Iterator[str]:
    """The names of streams; an unknown stream_id could be any stream."""
    return (known.get(stream_id_, EVERYTHING) for stream_id_ in token.allow.stream_ids)


def _issuer(key: bytes) -> Actor:
    return Actor(
        name=f"issuer {key.hex()[:16]}",
        part=ActorRole.ISSUER,
        secrets=frozenset([key]),
        writes=(EVERYTHING,),
    )


def _principal(principal: PolicyPrincipal) -> Actor:
    return Actor(
        name=f"principal {principal.name} ({principal.role.title})",
        part=ActorRole.PRINCIPAL,
        secrets=_secrets(principal),
        reads=principal.read,
        writes=principal.write,
    )


def _secrets(principal: PolicyPrincipal) -> frozenset[bytes]:
    return frozenset(
        key for key in (principal.public_key, principal.token_sha256) if key is not None
    )


def _streams(settings: BridgeSettings, hub: HubSettings) -> Iterator[str]:
    yield from (stream.name for stream in hub.streams)
    yield from (ONLINE_LOG, OFFLINE_LOG)
    for route in settings.streams.routes:
        yield from (route.source, route.target)


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
    _tell_claims(claims, way)


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


def _tell_claims(claims: list[BridgeClaim], way: dict[str, Any] | None) -> None:
    holds = all(claim.holds for claim in claims)
    document = {"ok": holds, "claims": [claim.document() for claim in claims], "event": way}
    if manner().json:
        show(document)
    else:
        for claim in claims:
            show(claim.document())
        if way is not None:
            show(way)
    if not holds:
        raise typer.Exit(INTEGRITY)
