"""``veen zone init``: what it refuses, and that the parts of what it makes fit together."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge import settings as bridge_settings
from bridge.trust import TrustStore
from hub import settings as hub_settings
from hub.storage.datadir import DataDir
from hub.storage.identity import read_identity
from recorder import settings as recorder_settings
from veen.captoken import CapToken
from veen.digest import h
from veen.errors import Refused
from veen.label import stream_id
from zone.directory import USERS, ZoneHome, environment
from zone.people import EXPORTED, PRODUCERS
from zone.postgres import Postgres
from zone.run import start

Pair = tuple[ZoneHome, ZoneHome]
MakeZone = Callable[..., ZoneHome]


def veen(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "cli.main", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_refuses_a_folder_that_is_not_empty(a_zone: MakeZone, tmp_path: Path) -> None:
    (tmp_path / "z1").mkdir()
    (tmp_path / "z1" / "mine").touch()
    with pytest.raises(Refused, match="expected an empty directory"):
        a_zone(tmp_path / "z1")


def test_refuses_a_zone_that_is_there_and_changes_nothing(a_zone: MakeZone, tmp_path: Path) -> None:
    home = a_zone(tmp_path / "z1", "alone")
    before = home.file.read_bytes()
    with pytest.raises(Refused, match="is a zone already"):
        a_zone(tmp_path / "z1", "alone")
    assert home.file.read_bytes() == before


@pytest.mark.parametrize("name", ["50%", "100%%", "$HOME"])
def test_h29_refuses_a_path_that_airflow_would_expand(
    a_zone: MakeZone, tmp_path: Path, name: str
) -> None:
    """Made there, or moved there since."""
    with pytest.raises(Refused, match=r"got one with '[%$]'"):
        a_zone(tmp_path / name / "z1", "alone")
    assert not (tmp_path / name).exists()
    home = a_zone(tmp_path / "z1", "alone")
    moved = ZoneHome(home.root.rename(tmp_path / name))
    with pytest.raises(Refused, match="which Airflow expands in its settings"):
        start([moved], print)
    assert not moved.run.exists()


@pytest.mark.parametrize("role", ["online", "alone"])
def test_only_an_offline_zone_takes_trust(a_zone: MakeZone, tmp_path: Path, role: str) -> None:
    with pytest.raises(Refused, match="expected --trust"):
        a_zone(tmp_path / "z", role, trust=tmp_path)


def test_an_offline_zone_needs_trust(a_zone: MakeZone, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="expected --trust"):
        a_zone(tmp_path / "z", "offline")


def test_refuses_trust_that_names_nobody(a_zone: MakeZone, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match="one hub and its exporter"):
        a_zone(tmp_path / "z", "offline", trust=tmp_path / "empty")
    assert not (tmp_path / "z").exists()


def test_refuses_a_handed_over_hub_that_was_changed(zone_pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "handover"
    folder.mkdir()
    for path in zone_pair[0].handover.iterdir():
        raw = bytearray(path.read_bytes())
        if path.suffix == ".sig":
            raw[7] ^= 1
        (folder / path.name).write_bytes(raw)
    done = veen(
        "zone", "init", "--directory", tmp_path / "z", "--name", "z", "--role", "offline",
        "--trust", folder, "--json",
    )  # fmt: skip
    assert done.returncode == 3, done
    assert not (tmp_path / "z").exists()


def test_every_part_loads_and_names_the_same_hub(zone_pair: Pair) -> None:
    for home in zone_pair:
        zone = home.zone()
        recorder, bridge = recorder_settings.load(home.file), bridge_settings.load(home.file)
        assert hub_settings.load(home.file).gated
        assert zone.hub_id == recorder.hub.hub_id == bridge.hub.hub_id
        assert zone.hub_id == read_identity(DataDir(home.hub)).hub_id
        assert recorder.hub.url == bridge.hub.url == hub_settings.load(home.file).url


def test_h05_signatures_are_asked_for_where_approvers_are_named_and_nowhere_else(
    zone_pair: Pair, a_zone: MakeZone, tmp_path: Path
) -> None:
    """A key that lay on this host would prove nothing, so none is made for approvals."""
    for home in zone_pair:
        importing = bridge_settings.load(home.file).importing
        assert importing is None or importing.approvals == ()
    trust, keys = zone_pair[0].handover, (b"a" * 32, b"b" * 32)
    home = a_zone(tmp_path / "z", "offline", trust=trust, approvers=keys)
    importing = bridge_settings.load(home.file).importing
    assert importing is not None
    assert {(approval.needed, approval.approvers) for approval in importing.approvals} == {
        (2, keys)
    }
    prefixes = tuple(approval.prefix for approval in importing.approvals)
    routes = bridge_settings.load(home.file).streams.routes
    assert [route.source for route in routes if not route.source.startswith(prefixes)] == []
    with pytest.raises(Refused, match="the same person twice"):
        a_zone(tmp_path / "y", "offline", trust=trust, approvers=(keys[0], keys[0]))
    with pytest.raises(Refused, match="expected an offline zone"):
        a_zone(tmp_path / "x", "online", approvers=keys)


def test_large_queries_go_to_the_airflow_of_the_zone(a_zone: MakeZone, tmp_path: Path) -> None:
    usual, small = a_zone(tmp_path / "z1", "alone"), a_zone(tmp_path / "z2", "alone", row_budget=7)
    for home, budget in ((usual, 100_000), (small, 7)):
        document = recorder_settings.load(home.file)
        assert (document.query.engine, document.query.row_budget) == ("auto", budget)
        assert document.query.airflow_url == home.zone().airflow.url
        assert document.objects is not None


def test_all_listen_on_the_loopback_on_ports_of_their_own(zone_pair: Pair) -> None:
    places = [
        listen
        for home in zone_pair
        for listen in (
            hub_settings.load(home.file).listen,
            recorder_settings.load(home.file).query.listen,
            home.zone().airflow.listen,
        )
    ]
    assert all(place.startswith("127.0.0.1:") for place in places)
    assert len(set(places)) == len(places)


def test_the_offline_zone_trusts_the_online_one_and_takes_its_streams(zone_pair: Pair) -> None:
    online, offline = zone_pair
    trust = TrustStore.read(offline.trust)
    assert list(trust.hubs) == [online.zone().hub_id]
    assert list(trust.exporters.values()) == ["z1"]
    routes = bridge_settings.load(offline.file).streams.routes
    assert {route.source for route in routes} == {*EXPORTED, "bridge/online/log"}
    assert {route.hub_id for route in routes} == {online.zone().hub_id}


def test_no_key_is_in_both_zones(zone_pair: Pair) -> None:
    keys = [
        {principal.public_key for principal in hub_settings.load(home.file).policy.principals}
        for home in zone_pair
    ]
    assert keys[0].isdisjoint(keys[1])
    issuers = [hub_settings.load(home.file).issuers for home in zone_pair]
    assert issuers[0].isdisjoint(issuers[1])


def test_a_capability_covers_its_streams_and_no_other(zone_pair: Pair) -> None:
    for name, stream in PRODUCERS.items():
        token = CapToken.decode(zone_pair[0].capability(name).read_bytes())
        token.verify_chain()
        assert list(token.allow.stream_ids) == [stream_id(stream)]
        assert token.issuer_pk in hub_settings.load(zone_pair[0].file).issuers


def test_nothing_handed_over_is_secret(zone_pair: Pair) -> None:
    """Names, a public key and what the hub signed; no private key is a part of any of it."""
    handed = b"".join(path.read_bytes() for path in zone_pair[0].handover.iterdir())
    for key in (zone_pair[0].hub / "keys").iterdir():
        assert key.read_bytes() not in handed
        assert key.read_bytes().hex().encode() not in handed


def test_what_is_secret_is_private_and_not_in_the_file(zone_pair: Pair) -> None:
    home = zone_pair[0]
    text = home.file.read_text()
    for file in home.secrets.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for secret in json.loads(home.passwords.read_text()).values():
        assert secret not in text
    token = home.token.read_text().strip()
    assert token not in text
    assert h(token.encode()).hex() in text
    assert stat.S_IMODE(home.root.stat().st_mode) & 0o066 == 0


def test_the_environment_has_what_airflow_and_spark_need(zone_pair: Pair) -> None:
    home = zone_pair[0]
    result = environment(home, home.zone(), {"PATH": "/bin", "HOME": "/root"})
    assert len(bytes.fromhex(result["AIRFLOW__API_AUTH__JWT_SECRET"])) >= 64
    assert result["AIRFLOW_HOME"] == str(home.airflow)
    assert result["VEEN_ZONE"] == str(home.file)
    assert result["AIRFLOW__CORE__LOAD_EXAMPLES"] == "False"
    assert json.loads(result["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == "local[2]"
    assert result["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert result["PATH"].endswith(":/bin")
    users = result["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].split(",")
    named = dict(user.split(":") for user in users)
    assert named == dict(USERS)
    assert set(json.loads(home.passwords.read_text())) == set(named)


def test_what_the_caller_says_of_airflow_holds_but_for_where_it_is(zone_pair: Pair) -> None:
    home = zone_pair[0]
    given = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg2://db/airflow"}
    result = environment(home, home.zone(), given | {"AIRFLOW__API__PORT": "1"})
    assert result | given == result
    assert result["AIRFLOW__API__PORT"] == home.zone().airflow.listen.rpartition(":")[2]


def test_the_command_tells_what_to_do_next(tmp_path: Path) -> None:
    done = veen("zone", "init", "--directory", tmp_path / "z", "--name", "z", "--json")
    assert done.returncode == 0, done
    document = json.loads(done.stdout)
    assert document["role"] == "alone"
    assert document["next"].startswith("veen zone up")
    result = veen("zone", "status", "--directory", tmp_path / "z", "--json")
    assert json.loads(result.stdout)["zones"][0]["stage"] == "down"
    assert veen("zone", "status", "--directory", tmp_path).returncode == 0


def test_a_name_that_is_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    done = veen("zone", "init", "--directory", tmp_path / "z", "--name", "Z 1", "--json")
    assert done.returncode == 4, done
    assert not (tmp_path / "z").exists()


@pytest.mark.parametrize("verb", ["up", "down", "status"])
def test_a_folder_without_a_zone_is_named(tmp_path: Path, verb: str) -> None:
    done = veen("zone", verb, "--directory", tmp_path)
    assert done.returncode == 4
    assert "holds no zone: make one with veen zone init" in done.stderr


def test_a_socket_has_a_path_that_the_kernel_takes(tmp_path: Path) -> None:
    deep = Postgres(tmp_path / ("x" * 120))
    assert len(str(deep.socket / ".s.PGSQL.5432")) < 108
    assert deep.socket != Postgres(tmp_path / ("y" * 120)).socket
    assert Postgres(Path("/z/postgres")).socket == Path("/z/postgres/socket")
