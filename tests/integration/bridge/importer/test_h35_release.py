"""What would keep a bundle out is found before anybody is asked; what is mended comes out again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from bridge.importer.release import NotReleased, release
from bridge.importer.run import ImportRequest
from cli.main import app
from support.bridge import bridge_world
from veen import captoken
from veen.crypto import SigningKey
from veen.label import stream_id

OTHER = "export/stranger"


def stranger(zone: Any) -> tuple[Path, str]:
    """A medium with a bundle of a stream that the settings do not have."""
    raw = bridge_world.World(stream=OTHER).grow(3).bundle(1, 3)
    return zone.carry(raw), bridge_world.bundle_id_of(raw).hex()


def map_stranger(zone: Any) -> None:
    hub_id = zone.settings.streams.routes[0].hub_id.hex()
    target = f"{zone.target}-stranger"
    zone.write_settings(
        f'[[streams]]\nhub_id = "{hub_id}"\nsource = "{OTHER}"\ntarget = "{target}"\n'
    )


def released(zone: Any, name: str) -> Any:
    order = ImportRequest(operator=zone.name, reason="case 12")
    return release(zone.settings, name, order, zone.around())


def verify(zone: Any, *media: Path) -> list[dict[str, Any]]:
    bags = [str(bag) for medium in media for bag in medium.iterdir()]
    words = ["bridge", "verify", *bags, "--json"]
    done = copy_context().run(
        CliRunner().invoke, app, [*words, "--config", str(zone.root / "bridge.toml")]
    )
    result: list[dict[str, Any]] = json.loads(done.stdout)["carriers"]
    return result


def codes(rows: Sequence[dict[str, Any]]) -> list[str | None]:
    return [row["code"] for row in rows]


def test_h35_a_stream_without_a_target_is_found_before_anybody_is_asked(import_zone: Any) -> None:
    medium, _ = stranger(import_zone)
    (row,) = verify(import_zone, medium)
    assert (row["verdict"], row["reason"], row["code"]) == ("valid", None, "UNMAPPED")
    assert f"{OTHER} of hub" in row["obstacle"]
    map_stranger(import_zone)
    assert codes(verify(import_zone, medium)) == [None]


def test_h35_a_capability_that_the_hub_does_not_take_is_found_before_anybody_is_asked(
    import_zone: Any, tmp_path: Path
) -> None:
    medium = import_zone.medium(1, 2)
    issuer, path = SigningKey(bytes(32)), tmp_path / "bridge.cap"
    import_zone.capabilities["bridge"] = path
    import_zone.write_settings()
    for stream, why in (("import/other", "does not allow"), (import_zone.target, "does not know")):
        token = captoken.issue(issuer, subject_pk=bytes(32), stream_ids=[stream_id(stream)], ttl=9)
        path.write_bytes(token.encode())
        (row,) = verify(import_zone, medium)
        assert row["code"] == "CAPABILITY"
        assert why in row["obstacle"]
    del import_zone.capabilities["bridge"]
    import_zone.write_settings()
    assert codes(verify(import_zone, medium)) == [None]


def test_h35_disk_space_and_age_are_reported_before_anybody_is_asked(
    import_zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = import_zone.medium(1, 2)
    with monkeypatch.context() as patched:
        full = SimpleNamespace(f_bavail=1, f_frsize=1)
        patched.setattr(os, "statvfs", lambda _path: full)
        (row,) = verify(import_zone, medium)
    assert row["code"] == "NO_ROOM"
    assert "free disk space" in row["obstacle"]
    import_zone.write_settings(importing="warn_age_days = 0")
    (row,) = verify(import_zone, medium)
    assert (row["code"], row["obstacle"]) == (None, None)
    assert "its checkpoint is" in row["warning"]


def test_h35_a_bundle_comes_out_of_quarantine_once_its_stream_is_mapped(import_zone: Any) -> None:
    medium, name = stranger(import_zone)
    assert import_zone.states(medium) == ["quarantined"]
    with pytest.raises(NotReleased, match="still cannot be imported and stays in quarantine"):
        released(import_zone, name[:16])
    assert import_zone.files("quarantine") == [name]
    map_stranger(import_zone)
    result = released(import_zone, name[:16])
    assert (result.bundle_id.hex(), result.code) == (name, "UNMAPPED")
    assert (import_zone.files("quarantine"), len(import_zone.files("inbox"))) == ([], 1)
    (entry,) = (audit for audit in import_zone.audits() if audit.KIND == "import.released")
    assert (entry.code, entry.reason, entry.operator) == ("UNMAPPED", "case 12", import_zone.name)
    assert import_zone.states() == ["imported"]
    assert (import_zone.files("quarantine"), import_zone.files("inbox")) == ([], [])


def test_h35_what_is_still_damaged_stays_in_quarantine(import_zone: Any) -> None:
    medium = import_zone.medium(1, 2)
    (volume,) = medium.rglob("*.agv")
    volume.write_bytes(volume.read_bytes()[:-1] + b"\0")
    import_zone.states(medium)
    (name,) = import_zone.files("quarantine")
    with pytest.raises(NotReleased, match="still refused and stays in quarantine"):
        released(import_zone, name)
    assert import_zone.files("quarantine") == [name]
    with pytest.raises(NotReleased, match="got nothing"):
        released(import_zone, "0" * 64)


def test_h35_a_rejected_bundle_that_is_released_is_asked_about_anew(import_zone: Any) -> None:
    raw = import_zone.bundle(1, 3)
    medium, name = import_zone.carry(raw), bridge_world.bundle_id_of(raw).hex()
    assert import_zone.states(medium, only=(), rejected=(name,), reason="no") == ["rejected"]
    released(import_zone, name)
    assert import_zone.states(only=("none",)) == ["blocked"]
    assert import_zone.states(only=(name,)) == ["imported"]


def test_h35_what_is_imported_is_not_in_quarantine_any_more(import_zone: Any) -> None:
    medium, _ = stranger(import_zone)
    assert import_zone.states(medium) == ["quarantined"]
    map_stranger(import_zone)
    assert import_zone.states(medium) == ["imported"]
    assert import_zone.files("quarantine") == []


def test_h35_the_command_tells_what_is_next(import_zone: Any) -> None:
    medium, name = stranger(import_zone)
    import_zone.run(medium)
    map_stranger(import_zone)
    words = ["bridge", "release", name[:8], "--reason", "mapped", "--json"]
    done = copy_context().run(
        CliRunner().invoke, app, [*words, "--config", str(import_zone.root / "bridge.toml")]
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["bundle_id"], document["next"]) == (name, "veen bridge import")


def test_h05_a_refused_approval_is_audited_for_each_bundle(import_zone: Any) -> None:
    raw = import_zone.bundle(1, 3)
    medium, name = import_zone.carry(raw), bridge_world.bundle_id_of(raw)
    order = {"only": ("none",), "unapproved": (name,), "reason": "its state was set by hand"}
    assert import_zone.states(medium, **order) == ["blocked"]
    (entry,) = (audit for audit in import_zone.audits() if audit.KIND == "import.approval_refused")
    assert (entry.bundle_id, entry.detail) == (name, "its state was set by hand")
    again = replace(entry, operator="x")
    assert again.subject_id() == f"bundle/{name.hex()}"
