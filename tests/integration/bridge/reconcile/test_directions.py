"""J3: by the enumeration of everybody who can act, nothing leads back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.prove.claims import Actor, ActorRole, ZoneActors, prove_directions
from bridge.prove.read_only import prove_read_only
from bridge.settings import BridgeSettings, parse
from hub.settings import parse as parse_hub
from hub.storage.control_log import Granted, read_granted
from support.bridge.reconcile_histories import named
from support.hub.hub_process import hub_in
from veen.captoken import issue
from veen.client.hub_api import HubApi
from veen.client.transport import RetryPolicy, Transport
from veen.crypto import SigningKey
from veen.errors import Untrusted
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.label import stream_id
from veen.system.environment import Runtime
from zone.actors import zone_actors

AROUND = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
NOTHING = Granted(entries=0, root=bytes(32), tokens=(), streams=())


def an_actor(name: str, part: ActorRole = ActorRole.PRINCIPAL, **more: object) -> Actor:
    return Actor(name=name, part=part, secrets=frozenset([named(name)]), **more)  # type: ignore[arg-type]


def a_zone(number: int, *actors: Actor) -> ZoneActors:
    return ZoneActors(
        hub_id=named("hub", number), url=f"http://h{number}", is_gated=True, actors=actors,
        control_entries=0, control_root=bytes(32),
    )  # fmt: skip


ONLINE = a_zone(
    1,
    an_actor("online bridge", ActorRole.BRIDGE, reads=("export/*", "bridge/online/log")),
    an_actor("online audit", ActorRole.AUDIT, writes=("bridge/online/log",)),
    an_actor("producer", writes=("record/a",)),
    an_actor("online issuer", ActorRole.ISSUER, writes=("*",)),
)
OFFLINE = a_zone(
    2,
    an_actor("offline bridge", ActorRole.BRIDGE, writes=("import/*",)),
    an_actor("offline audit", ActorRole.AUDIT, writes=("bridge/offline/log",)),
    an_actor("reader", ActorRole.READER, reads=("*",)),
)


def test_zones_that_share_nothing_are_one_way() -> None:
    claim = prove_directions(ONLINE, OFFLINE)
    assert claim.holds
    assert claim.witness["keys"] == {"online": 4, "offline": 3, "in_both": 0}
    assert [item["name"] for item in claim.witness["offline"]["actors"]] == [
        "offline bridge", "offline audit", "reader",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("online", "offline", "detail"),
    [
        pytest.param(
            ONLINE,
            replace(OFFLINE, actors=(*OFFLINE.actors, an_actor("producer", reads=("*",)))),
            "is producer in Z2 and producer in Z1, which writes ['record/a']",
            id="a key that reads in Z2 and writes in Z1",
        ),
        pytest.param(
            ONLINE,
            replace(OFFLINE, actors=(*OFFLINE.actors, an_actor("online issuer"))),
            "which writes ['*']",
            id="who could grant anything in Z1 acts in Z2",
        ),
        pytest.param(
            a_zone(1, an_actor("b", ActorRole.BRIDGE, writes=("export/a",))),
            OFFLINE,
            "b writes export/a; the bridge of its zone writes nothing",
            id="the bridge of Z1 writes",
        ),
        pytest.param(
            ONLINE,
            a_zone(2, an_actor("b", ActorRole.BRIDGE, reads=("import/*",))),
            "b reads import/*; the bridge of its zone reads nothing",
            id="the bridge of Z2 reads",
        ),
        pytest.param(
            a_zone(1, an_actor("a", ActorRole.AUDIT, writes=("record/a",))),
            OFFLINE,
            "the audit of its zone writes only bridge/online/log",
            id="an auditor writes elsewhere",
        ),
        pytest.param(replace(ONLINE, is_gated=False), OFFLINE, "from anybody", id="open hub"),
        pytest.param(ONLINE, replace(OFFLINE, url=ONLINE.url), "one hub", id="one address"),
        pytest.param(
            a_zone(1, an_actor("p", writes=("import/x",))),
            OFFLINE,
            "Z2's events",
            id="import in Z1",
        ),
    ],
)
def test_names_what_leads_back(online: ZoneActors, offline: ZoneActors, detail: str) -> None:
    claim = prove_directions(online, offline)
    assert not claim.holds
    assert detail in (claim.counterexample or "")


def settings_in(folder: Path, zone: str, number: int) -> BridgeSettings:
    for item in ("bridge", "audit", "reader"):
        ClientDir(folder / item).create(now=1, random=os.urandom, passphrase=None)
    return parse(
        {
            "zone": zone,
            "name": zone,
            "hub": {"url": f"http://127.0.0.1:{number}", "hub_id": named(number).hex()},
            "bridge": {"client": "bridge", "capability": "cap"},
            "audit": {"client": "audit", "reader": "reader/identity_card.pub"},
            "reader": {"client": "reader"},
            "streams": [
                {"source": "export/a"} | ({"hub_id": named(1).hex()} if zone == "offline" else {})
            ],
        },
        folder,
    )


def test_capabilities_and_open_reads_are_in_the_enumeration(tmp_path: Path) -> None:
    (tmp_path / "z2").mkdir()
    settings = settings_in(tmp_path / "z2", "offline", 2)
    issuer = SigningKey(named("issuer"))
    bridge = ClientDir(settings.bridge.client).open(None).client_id
    streams = [stream_id("import/a"), stream_id("nobody/knows")]
    token = issue(issuer, subject_pk=bridge, stream_ids=streams, ttl=60)
    (tmp_path / "z2" / "cap").write_bytes(token.encode())
    hub = parse_hub({"issuers": [issuer.public.hex()], "reads": "open"})
    actors = zone_actors(settings, hub, NOTHING)
    by_part = {actor.part: actor for actor in actors.actors}
    # A stream that nobody names could be any, and so counts as all.
    assert by_part[ActorRole.BRIDGE].writes == ("*", "import/a")
    assert by_part[ActorRole.BRIDGE].reads == ("*",)
    assert by_part[ActorRole.ISSUER].secrets == frozenset([issuer.public])
    claim = prove_directions(ONLINE, actors)
    assert "reads *" in (claim.counterexample or "")


def uncapped(folder: Path, zone: str, number: int) -> BridgeSettings:
    folder.mkdir()
    settings = settings_in(folder, zone, number)
    return replace(settings, bridge=replace(settings.bridge, capability=None))


@pytest.fixture(scope="module")
def hub_online(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    issuer = SigningKey(named("online issuer"))
    toml = f'issuers = ["{issuer.public.hex()}"]\n[[streams]]\nname = "export/x"\n'
    with hub_in(tmp_path_factory.mktemp("z1") / "hub", toml) as result:
        yield result


def authorized(hub: Any, subject: bytes, *streams: str) -> None:
    token = issue(
        SigningKey(named("online issuer")), subject_pk=subject, ttl=60,
        stream_ids=[stream_id(stream) for stream in streams],
    )  # fmt: skip
    with closing(Transport(hub.url, runtime=AROUND, retry_policy=RetryPolicy())) as transport:
        HubApi(transport).authorize(token)


def test_a_capability_that_the_control_log_of_z1_has_for_a_key_of_z2_leads_back(
    hub_online: Any, tmp_path: Path
) -> None:
    hub_id = hub_online.client().hub_id
    online = uncapped(tmp_path / "z1", "online", 1)
    there = replace(online, hub=replace(online.hub, hub_id=hub_id))
    offline = uncapped(tmp_path / "z2", "offline", 2)
    hub = parse_hub({"streams": [{"name": "export/x"}]})
    here = zone_actors(offline, hub, NOTHING)
    authorized(hub_online, named("a producer of Z1"), "export/x")
    before = prove_directions(zone_actors(there, hub, read_granted(hub_online.data, hub_id)), here)
    assert before.holds, before.counterexample
    assert before.witness["online"]["control_log"]["entries"] == 1

    assert offline.reader is not None
    key = ClientDir(offline.reader.client).open(None).client_id
    authorized(hub_online, key, "export/x")
    claim = prove_directions(zone_actors(there, hub, read_granted(hub_online.data, hub_id)), here)
    assert not claim.holds
    assert key.hex() in str(claim.counterexample)
    assert "which writes ['export/x']" in str(claim.counterexample)
    with pytest.raises(Untrusted, match="expected hub"):
        read_granted(hub_online.data, named("another hub"))


EXPORTING = replace(
    ONLINE,
    exported=("record/a", "bridge/online/log"),
    actors=(
        an_actor("exporter", ActorRole.BRIDGE, reads=("record/a", "export/*", "bridge/online/log")),
        an_actor("online audit", ActorRole.AUDIT, writes=("bridge/online/log",)),
        an_actor("reader keys", ActorRole.READER),
        an_actor("producer", writes=("record/a",)),
    ),
)


def test_h26_a_bridge_that_only_reads_what_it_exports_holds() -> None:
    claim = prove_read_only(EXPORTING)
    assert claim.holds, claim.document()
    assert [item["name"] for item in claim.witness["identities"]] == [
        "exporter", "online audit", "reader keys",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("actor", "detail"),
    [
        (an_actor("exporter", ActorRole.BRIDGE, writes=("record/a",)), "may write record/a"),
        (
            an_actor("service", ActorRole.READER, writes=("record/query/*",)),
            "may write record/query/*",
        ),
        (an_actor("audit", ActorRole.AUDIT, writes=("bridge/*",)), "may write bridge/*"),
        (an_actor("exporter", ActorRole.BRIDGE, reads=("record/*",)), "may read record/*"),
        (an_actor("exporter", ActorRole.BRIDGE, reads=("record/b",)), "may read record/b"),
        (an_actor("reader", ActorRole.READER, reads=("*",)), "may read *"),
    ],
)
def test_h26_a_bridge_identity_that_writes_or_reads_more_is_named(
    actor: Actor, detail: str
) -> None:
    claim = prove_read_only(replace(EXPORTING, actors=(*EXPORTING.actors, actor)))
    assert not claim.holds
    assert f"{actor.name} {detail} in Z1" in str(claim.counterexample)


def test_h26_a_zone_that_names_no_bridge_identity_is_not_proven() -> None:
    claim = prove_read_only(replace(EXPORTING, actors=EXPORTING.actors[3:]))
    assert not claim.holds


def test_h26_a_hub_that_takes_messages_from_anybody_takes_the_bridges() -> None:
    claim = prove_read_only(replace(EXPORTING, is_gated=False))
    assert "takes messages from anybody" in str(claim.counterexample)


@pytest.mark.parametrize("second", ["id_sign", "token"])
def test_h26_every_principal_that_an_identity_can_act_as_counts(
    tmp_path: Path, second: str
) -> None:
    """One by its client key, which only reads; another by its other key, or by a token's name."""
    settings = uncapped(tmp_path / "z1", "online", 1)
    settings = replace(settings, bridge=replace(settings.bridge, principal="other"))
    card = read_card(ClientDir(settings.bridge.client).card)
    other = {"name": "other", "role": "query", "write": ["record/query/*"]}
    if second == "token":
        other["token_sha256"] = named("a token").hex()
    else:
        other["public_key"] = card.id_sign.hex()
    reads = {
        "name": "reads", "role": "bridge_online", "read": ["export/a"],
        "public_key": card.client_id.hex(),
    }  # fmt: skip
    hub = parse_hub({"admission": "gated", "principals": [reads, other]})
    claim = prove_read_only(zone_actors(settings, hub, NOTHING))
    assert "may write record/query/* in Z1" in str(claim.counterexample)
