"""``veen bridge status`` of the importing side: what lies where, why, and what to run next."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from bridge.importer.ledger_file import BadLedger


def status(zone: Any) -> Any:
    command = [sys.executable, "-m", "cli.main", "bridge", "status", "--json"]
    command += ["--config", str(zone.root / "bridge.toml")]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, (run.stdout, run.stderr)
    return json.loads(run.stdout)


def test_a_zone_that_has_imported_nothing_is_shown_and_not_made(import_zone: Any) -> None:
    assert status(import_zone)["next"] == "veen bridge import --medium DIR"
    assert not import_zone.import_dir.root.exists()


def test_the_next_command_after_a_lost_ledger_is_the_one_that_import_asks_for(
    import_zone: Any,
) -> None:
    medium = import_zone.medium(1, 3)
    assert import_zone.states(medium) == ["imported"]
    for path in import_zone.import_dir.root.glob("ledger.db*"):
        path.unlink()
    assert "veen bridge import --rebuild-ledger" in status(import_zone)["next"]
    assert list(import_zone.import_dir.root.glob("ledger.db*")) == []
    with pytest.raises(BadLedger, match="--rebuild-ledger"):
        import_zone.run(medium)
    assert "veen bridge import --rebuild-ledger" in status(import_zone)["next"]


def test_what_was_refused_is_shown_with_its_reason(import_zone: Any) -> None:
    assert "quarantine" not in status(import_zone)
    medium = import_zone.medium(1, 3)
    volume = next(medium.rglob("v001.agv"))
    volume.write_bytes(volume.read_bytes()[:-1] + b"x")
    (outcome,) = import_zone.run(medium).outcomes
    result = status(import_zone)
    assert result["quarantined"] == 1
    (row,) = result["quarantine"]
    assert (row["path"], row["code"]) == (outcome.place, "E.SIG/VOLUME")
    assert "v001.agv" in row["detail"]
