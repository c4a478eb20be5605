"""H28: every principal of the query service maps to a VEEN identity (Query API 7.1)."""

from __future__ import annotations

import json
import os
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from recorder import settings as recorder_settings
from recorder.api.app import create_app
from recorder.service import supervisor
from recorder.service.requests import Principals, Waits
from recorder.service.supervisor import ServiceLaunch
from recorder.settings import RecorderSettings, load, refuse_unmapped
from support.recorder import query_world
from veen.keystore.directory import ClientDir
from veen.system.config import BadSettings
from zone.directory import ZoneHome
from zone.init import ZoneRequest, init


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
    detail = "name = 'bob': it has no VEEN identity .* public_key or client; .* veen keygen"
    with pytest.raises(BadSettings, match=detail):
        supervisor.run(ServiceLaunch(unmapped))
    with pytest.raises(BadSettings, match=detail):
        create_app(settings, Waits(recorded_sec=0, completed_sec=0))


def test_h28_the_check_of_a_configuration_names_it(unmapped: Path) -> None:
    run = copy_context().run(
        CliRunner().invoke, app, ["recorder", "config", "check", "--config", str(unmapped)]
    )
    assert isinstance(run.exception, BadSettings)


def test_h28_a_client_directory_is_an_identity(tmp_path: Path, unmapped: Path) -> None:
    identity = ClientDir(tmp_path / "bob").create(
        now=1_900_000_000, random=os.urandom, passphrase=None
    )
    text = unmapped.read_text().replace('name = "bob"\n', 'name = "bob"\nclient = "bob"\n')
    unmapped.write_text(text)
    assert identities(load(unmapped))["bob"] == identity.client_id


def test_h28_accesses_with_a_token_are_audited_under_the_identity(query_zone: Any) -> None:
    with query_zone.as_("alice") as alice:
        reply = alice.post("/api/query/submit", json=query_world.a_query(query_id="q-h28"))
        assert reply.status_code in (200, 202)

    def recorded() -> list[Any]:
        query_zone.catch_up(query_zone.checkpoint())
        asked = query_world.a_query(scope=["record/query/audit/access"], projection=["payload"])
        rows = query_zone.signed("POST", "/api/query/submit", json.dumps(asked).encode()).json()[
            "rows"
        ]
        result = [row["payload"] for row in rows]
        return [item for item in result if item["resource_identifier"] == "query:q-h28"]

    (entry,) = query_world.wait_until(recorded, "an audit entry")
    assert entry["requester_identity"] == query_world.identity_of("alice").hex()


@pytest.mark.parametrize("role", ["online", "alone"])
def test_h28_a_new_zone_gives_its_analyst_an_identity(tmp_path: Path, role: str) -> None:
    home = ZoneHome(tmp_path / "zone")
    init(
        home,
        ZoneRequest(name="z1", role=role, storage=None, trust=None),
        now=1_900_000_000,
        random=os.urandom,
    )
    document = recorder_settings.load(home.file)
    refuse_unmapped(document.query.principals)
    assert identities(document)["analyst"] == home.identity("analyst").read_card().client_id


def identities(settings: RecorderSettings) -> dict[str, bytes]:
    principals = Principals(settings.query.principals)
    return {
        principal.name: principals.identity(principal) for principal in settings.query.principals
    }
