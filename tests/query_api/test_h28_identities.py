"""H28: every principal of the query service maps to a VEEN identity (Query API 7.1)."""

from __future__ import annotations

import json
import os
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
import query_world
from typer.testing import CliRunner

from cli.main import app
from cli.zone_home import ZoneHome
from cli.zone_init import Wanted, init
from recorder import settings as recorder_settings
from recorder.api.app import create_app
from recorder.service import supervisor
from recorder.service.principals import Principals
from recorder.service.process import Launch
from recorder.service.submission import Waits
from recorder.settings import Settings, load
from recorder.settings_query import refuse_unmapped
from veen.keystore.directory import ClientDir
from veen.settings_table import BadSettings


@pytest.fixture
def unmapped(tmp_path: Path) -> Path:
    """Settings as they were: a token, and no identity."""
    path = tmp_path / "recorder.toml"
    text = query_world.recorder_toml("http://127.0.0.1:1", "00" * 32, 1)
    key = f'public_key = "{query_world.identity_of("bob").hex()}"\n'
    assert key in text
    path.write_text(text.replace(key, ""))
    return path


def test_h28_the_service_does_not_start_with_a_principal_without_identity(unmapped: Path) -> None:
    settings = load(unmapped)
    told = "name = 'bob': it has no VEEN identity .* public_key or client; .* veen keygen"
    with pytest.raises(BadSettings, match=told):
        supervisor.run(Launch(unmapped))
    with pytest.raises(BadSettings, match=told):
        create_app(settings, Waits(recorded_sec=0, completed_sec=0))


def test_h28_the_check_of_a_configuration_names_it(unmapped: Path) -> None:
    found = copy_context().run(
        CliRunner().invoke, app, ["recorder", "config", "check", "--config", str(unmapped)]
    )
    assert isinstance(found.exception, BadSettings)


def test_h28_a_client_directory_is_an_identity(tmp_path: Path, unmapped: Path) -> None:
    made = ClientDir(tmp_path / "bob").create(now=1_900_000_000, random=os.urandom, passphrase=None)
    text = unmapped.read_text().replace('name = "bob"\n', 'name = "bob"\nclient = "bob"\n')
    unmapped.write_text(text)
    assert identities(load(unmapped))["bob"] == made.client_id


def test_h28_accesses_with_a_token_are_audited_under_the_identity(zone: Any) -> None:
    with zone.as_("alice") as alice:
        reply = alice.post("/api/query/submit", json=query_world.a_query(query_id="q-h28"))
        assert reply.status_code in (200, 202)

    def recorded() -> list[Any]:
        zone.catch_up(zone.checkpoint())
        asked = query_world.a_query(scope=["record/query/audit/access"], projection=["payload"])
        rows = zone.signed("POST", "/api/query/submit", json.dumps(asked).encode()).json()["rows"]
        found = [one["payload"] for one in rows]
        return [one for one in found if one["resource_identifier"] == "query:q-h28"]

    (entry,) = query_world.wait_until(recorded, "an audit entry")
    assert entry["requester_identity"] == query_world.identity_of("alice").hex()


@pytest.mark.parametrize("role", ["online", "alone"])
def test_h28_a_new_zone_gives_its_analyst_an_identity(tmp_path: Path, role: str) -> None:
    home = ZoneHome(tmp_path / "zone")
    init(
        home,
        Wanted(name="z1", role=role, storage=None, trust=None),
        now=1_900_000_000,
        random=os.urandom,
    )
    found = recorder_settings.load(home.file)
    refuse_unmapped(found.query.principals)
    assert identities(found)["analyst"] == home.identity("analyst").read_card().client_id


def identities(settings: Settings) -> dict[str, bytes]:
    found = Principals(settings.query.principals)
    return {one.name: found.identity(one) for one in settings.query.principals}
