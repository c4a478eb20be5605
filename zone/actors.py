"""Who can read and write in a zone, for the proofs of J3 and AGB0 4.3.

From the settings of its hub and its bridge, and from the control log of its hub, which has every
capability that was ever authorized.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from bridge.prove.claims import EVERYTHING, Actor, ActorRole, ZoneActors
from bridge.settings import BridgeSettings, IdentitySettings
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG
from hub.policy import PolicyPrincipal
from hub.settings import HubSettings
from hub.storage.control_log import Granted
from veen.captoken import CapToken, read_token
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.label import stream_id


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
