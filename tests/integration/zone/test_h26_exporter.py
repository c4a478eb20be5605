"""The online bridge that ``veen zone init`` makes: it reads what it exports, and writes nothing."""

from __future__ import annotations

from pathlib import Path

from bridge import settings as bridge_settings
from bridge.prove.evidence import BridgeClaim
from bridge.prove.read_only import prove_read_only
from hub import settings as hub_settings
from hub.storage.control_log import Granted
from recorder import settings as recorder_settings
from recorder.connect import shared_reader_keys
from recorder.index import imports
from recorder.index.tables import IndexHome
from veen.captoken import read_token
from zone.actors import zone_actors
from zone.directory import ZoneHome
from zone.imports import take_up
from zone.people import EXPORTED

Pair = tuple[ZoneHome, ZoneHome]


def judged(home: ZoneHome, file: Path) -> BridgeClaim:
    tokens = tuple(read_token(path) for path in sorted(home.capabilities.glob("*.cap")))
    granted = Granted(entries=len(tokens), root=bytes(32), tokens=tokens, streams=())
    settings = bridge_settings.load(file)
    return prove_read_only(zone_actors(settings, hub_settings.load(file), granted))


def test_h26_the_default_zone_has_a_bridge_that_only_reads_what_it_exports(zone_pair: Pair) -> None:
    claim = judged(zone_pair[0], zone_pair[0].file)
    assert claim.holds, claim.counterexample
    policy = hub_settings.load(zone_pair[0].file).policy
    bridge = policy.by_name("bridge")
    assert bridge is not None
    assert set(bridge.read) == {*EXPORTED, "bridge/online/log"}


def test_h26_the_claim_fails_on_the_layout_of_the_release_before(zone_pair: Pair) -> None:
    """The exporter read record/* and opened events as the query service, which writes."""
    home = zone_pair[0]
    text = home.file.read_text()
    before = home.root / "before.toml"
    exported = next(
        line for line in text.splitlines() if line.startswith('read = ["record/app/http"')
    )
    reader = '[bridge.reader]\nclient = "identities/service"\nprincipal = "service"\n\n'
    try:
        before.write_text(text.replace(exported, 'read = ["record/*", "bridge/online/log"]'))
        assert "may read record/* in Z1" in str(judged(home, before).counterexample)
        before.write_text(text.replace("[[bridge.streams]]", f"{reader}[[bridge.streams]]", 1))
        assert "may write record/query/* in Z1" in str(judged(home, before).counterexample)
    finally:
        before.unlink()


def test_h25_the_reader_of_a_zone_is_a_keystore_alone(zone_pair: Pair) -> None:
    for home in zone_pair:
        card = home.identity("reader").read_card()
        policy = hub_settings.load(home.file).policy
        assert policy.by_key(card.client_id) is policy.by_key(card.id_sign) is None
        assert not home.capability("reader").exists()
        subjects = {read_token(path).subject_pk for path in home.capabilities.glob("*.cap")}
        assert card.client_id not in subjects


def test_h25_a_zone_of_the_release_before_is_read_as_it_was(zone_pair: Pair) -> None:
    """Sealed to the service, which opens with its own keys; nothing is taken up for it."""
    home = zone_pair[1]
    text = home.file.read_text().replace("identities/reader/", "identities/service/")
    lines = [line for line in text.splitlines() if not line.startswith("reader_keys = ")]
    start = lines.index("[bridge.import_recorder]")
    before = home.root / "before.toml"
    try:
        before.write_text("\n".join([*lines[:start], *lines[start + 4 :], ""]))
        hub = recorder_settings.load(before).hub
        assert (hub.opener.client, shared_reader_keys(hub)) == (home.identity("service").root, ())
        bridge = bridge_settings.load(before)
        assert bridge.reader_keys is None
        assert bridge.import_recorder is None
        take_up(before)
        assert (
            imports.read_import(IndexHome(recorder_settings.load(before).index))
            == imports.Imports()
        )
    finally:
        before.unlink()


def test_h16_an_offline_zone_takes_up_all_that_its_bridge_imports(zone_pair: Pair) -> None:
    home = zone_pair[1]
    take_up(home.file)
    result = imports.read_import(IndexHome(recorder_settings.load(home.file).index))
    targets = {route.target for route in bridge_settings.load(home.file).streams.routes}
    assert set(result.streams) == targets
    assert [hub.hub_id for hub in result.hubs] == [zone_pair[0].zone().hub_id]
