"""Everybody who can act in a zone: by the settings of its hub and its bridge, and by the control
log of its hub, which has every capability that was ever authorized.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from bridge.prove_directions import EVERYTHING, Actor, Part, ZoneActors
from bridge.settings import IdentitySettings, Settings
from bridge.stream_map import OFFLINE_LOG, ONLINE_LOG
from cli.bridge_granted import Granted
from cli.cap import read_token
from hub.policy import Principal
from hub.settings import Settings as HubSettings
from veen.captoken import CapToken
from veen.keystore import card_file
from veen.keystore.directory import ClientDir
from veen.stream import stream_id


def zone_actors(settings: Settings, hub: HubSettings, granted: Granted) -> ZoneActors:
    """Principals, issuers, holders of capabilities, and the identities of the bridge."""
    known = {stream_id(one): one for one in (*_streams(settings, hub), *granted.streams)}
    bridge = list(_bridge_actors(settings, hub, known))
    mine = frozenset().union(*(one.secrets for one in bridge))
    others = [_principal(one) for one in hub.policy.principals if not _secrets(one) & mine]
    issuers = hub.issuers | {one.issuer_pk for one in granted.tokens}
    return ZoneActors(
        hub_id=settings.hub.hub_id,
        url=settings.hub.url,
        is_gated=hub.gated,
        actors=(
            *_with_grants([*bridge, *others], granted, known),
            *(_issuer(one) for one in sorted(issuers)),
        ),
        control_entries=granted.entries,
        control_root=granted.root,
        exported=settings.streams.sources(settings.hub.hub_id),
    )


def _with_grants(
    actors: list[Actor], granted: Granted, known: Mapping[bytes, str]
) -> Iterator[Actor]:
    """Each with what its capabilities let it write; then those who are known by one alone."""
    writes: dict[bytes, set[str]] = defaultdict(set)
    for one in granted.tokens:
        writes[one.subject_pk] |= set(_names(one, known))
    for actor in actors:
        more = [name for key in actor.secrets for name in writes.pop(key, ())]
        yield replace(actor, writes=tuple(sorted({*actor.writes, *more})))
    for key, names in sorted(writes.items()):
        yield Actor(
            name=f"holder {key.hex()[:16]} of a capability",
            part=Part.SUBJECT,
            secrets=frozenset([key]),
            writes=tuple(sorted(names)),
        )


def _bridge_actors(
    settings: Settings, hub: HubSettings, known: Mapping[bytes, str]
) -> Iterator[Actor]:
    for part, identity in (
        (Part.BRIDGE, settings.bridge),
        (Part.AUDIT, settings.audit),
        (Part.READER, settings.reader),
    ):
        if identity is not None:
            yield _identity(f"{settings.name} {part.value}", part, identity, hub, known)
    if settings.reader_keys is not None:
        keys = IdentitySettings(
            client=settings.reader_keys.client,
            passphrase_file=None,
            principal=None,
            capability=None,
        )
        yield _identity(f"{settings.name} reader keys", Part.READER, keys, hub, known)


def _identity(
    name: str,
    part: Part,
    identity: IdentitySettings,
    hub: HubSettings,
    known: Mapping[bytes, str],
) -> Actor:
    card = card_file.read(ClientDir(identity.client).card)
    secrets = frozenset([card.id_sign, card.id_dh, card.client_id])
    # It may be more than one principal: by either of its keys, and by the name it logs in with.
    matched = [
        one
        for one in hub.policy.principals
        if _secrets(one) & secrets or one.name == identity.principal
    ]
    granted = _names(read_token(identity.capability), known) if identity.capability else ()
    reads = sorted({pattern for one in matched for pattern in one.read})
    writes = {pattern for one in matched for pattern in one.write}
    return Actor(
        name=name,
        part=part,
        secrets=secrets.union(*map(_secrets, matched)),
        reads=(EVERYTHING,) if hub.reads == "open" else tuple(reads),
        writes=tuple(sorted({*writes, *granted})),
    )


def _names(token: CapToken, known: Mapping[bytes, str]) -> Iterator[str]:
    """Names where they are known; a stream that nobody names could be any."""
    return (known.get(one, EVERYTHING) for one in token.allow.stream_ids)


def _issuer(key: bytes) -> Actor:
    return Actor(
        name=f"issuer {key.hex()[:16]}",
        part=Part.ISSUER,
        secrets=frozenset([key]),
        writes=(EVERYTHING,),
    )


def _principal(one: Principal) -> Actor:
    return Actor(
        name=f"principal {one.name} ({one.role.title})",
        part=Part.PRINCIPAL,
        secrets=_secrets(one),
        reads=one.read,
        writes=one.write,
    )


def _secrets(one: Principal) -> frozenset[bytes]:
    return frozenset(key for key in (one.public_key, one.token_sha256) if key is not None)


def _streams(settings: Settings, hub: HubSettings) -> Iterator[str]:
    yield from (one.name for one in hub.streams)
    yield from (ONLINE_LOG, OFFLINE_LOG)
    for route in settings.streams.routes:
        yield from (route.source, route.target)
