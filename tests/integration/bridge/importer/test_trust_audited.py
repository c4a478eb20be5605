"""Changes of whom a zone believes are in its audit log before a carrier is judged by them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.importer.ledger import ImportLedger
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import ImportRequest
from bridge.trust import TrustChange, enter, entered, pin_exporter, revoke
from support import breakpoints
from support.bridge import importing_zone
from support.bridge.bridge_world import EXPORTER
from support.hub.hub_process import hub_in
from veen.crypto import SigningKey
from veen.digest import h

OTHER = SigningKey(h(b"another exporter")).public
KIND = "trust.changed"


def detail(zone: Any) -> list[Any]:
    """In the order of the log; whoever changed it, in a change that names this zone."""
    zone.audits()
    known = zone.hub.__dict__["audits_read"]
    return [
        item for item in known if item.KIND == KIND and zone.name in (item.operator, _who(item))
    ]


def _who(event: Any) -> str:
    return str(event.operator).partition(" of ")[2]


def change(zone: Any, what: str, at: int = 1_763_000_000, who: str = "ann") -> TrustChange:
    trust_change = TrustChange(at, f"{who} of {zone.name}", what)
    enter(zone.root / "trust", trust_change)
    return trust_change


def pin(zone: Any, name: str = "z9", public: bytes = OTHER) -> None:
    pin_exporter(zone.root / "trust", name, public)


def test_the_trust_that_a_zone_begins_with_is_no_change(import_zone: Any) -> None:
    assert import_zone.states(import_zone.medium(1, 2)) == ["imported"]
    assert detail(import_zone) == []


def test_what_was_entered_is_reported_once_with_who_what_and_when(import_zone: Any) -> None:
    changed = change(import_zone, f"pinned exporter z9 {OTHER.hex()}")
    pin(import_zone)
    for _ in range(2):
        import_zone.run()
    (entry,) = detail(import_zone)
    assert (entry.operator, entry.change, entry.changed_at) == (
        changed.who,
        changed.what,
        changed.at,
    )
    assert f"exporter z9 {OTHER.hex()}" in entry.believed.splitlines()


def test_a_pin_and_its_revocation_between_two_runs_are_both_reported(import_zone: Any) -> None:
    import_zone.run()
    pin(import_zone)
    change(import_zone, f"pinned exporter z9 {OTHER.hex()}")
    revoke(import_zone.root / "trust", OTHER, "stolen: case 12")
    change(import_zone, f"revoked {OTHER.hex()}: stolen: case 12", who="bob")
    import_zone.run()
    first, second = detail(import_zone)
    assert (first.believed, _operator(first)) == (None, "ann")
    assert (second.change, _operator(second)) == (f"revoked {OTHER.hex()}: stolen: case 12", "bob")
    assert f"revoked {OTHER.hex()}: stolen: case 12" in second.believed.splitlines()


def _operator(event: Any) -> str:
    return str(event.operator).partition(" of ")[0]


def test_what_nobody_entered_is_reported_by_the_run_that_finds_it(import_zone: Any) -> None:
    import_zone.run()
    pin(import_zone)
    import_zone.run()
    (entry,) = detail(import_zone)
    assert (entry.operator, entry.changed_at) == (import_zone.name, None)
    assert f"added exporter z9 {OTHER.hex()}" in entry.change
    assert "changes.txt" in entry.change


def test_a_revocation_that_is_taken_back_is_reported(import_zone: Any) -> None:
    revoke(import_zone.root / "trust", OTHER, "by mistake")
    import_zone.run()
    (import_zone.root / "trust" / f"revoked-{OTHER.hex()}.txt").unlink()
    import_zone.run()
    (entry,) = detail(import_zone)
    assert f"removed revoked {OTHER.hex()}: by mistake" in entry.change


def test_an_old_line_does_not_excuse_a_file_that_comes_back(import_zone: Any) -> None:
    pin(import_zone)
    change(import_zone, f"pinned exporter z9 {OTHER.hex()}")
    import_zone.run()
    file = import_zone.root / "trust" / "exporter-z9.pub"
    raw = file.read_bytes()
    file.unlink()
    import_zone.run()
    file.write_bytes(raw)
    import_zone.run()
    assert [item.changed_at is None for item in detail(import_zone)] == [False, True, True]
    assert "added exporter z9" in detail(import_zone)[-1].change


def test_the_entry_comes_before_the_carrier_that_is_judged_by_it(import_zone: Any) -> None:
    medium = import_zone.medium(1, 2)
    import_zone.run()
    revoke(import_zone.root / "trust", EXPORTER.public, "stolen")
    change(import_zone, f"revoked {EXPORTER.public.hex()}: stolen")
    (outcome,) = import_zone.run(medium).outcomes
    assert outcome.code == "E.AUTH/SIGNER"
    detail(import_zone)
    known = import_zone.hub.__dict__["audits_read"]
    mine = [item.KIND for item in known if import_zone.name in (item.operator, _who(item))]
    assert mine == [KIND, "import.quarantined"]


def test_nothing_goes_in_while_a_change_is_not_in_the_log(tmp_path: Path) -> None:
    with hub_in(tmp_path / "hub") as hub:
        zone = importing_zone.Zone(tmp_path / "zone", hub, "unreachable")
        first, medium = zone.medium(1, 2), zone.medium(3, 4)
        assert zone.states(first) == ["imported"]
        pin(zone)
        changed = change(zone, f"pinned exporter z9 {OTHER.hex()}")
        hub.stop()
        result = zone.run(medium)
        assert (result.outcomes, result.pending is not None) == ((), True)
        (zone.root / "trust" / "changes.txt").unlink()
        hub.start()
        assert zone.states(medium) == ["imported"]
        (entry,) = detail(zone)
        assert (entry.operator, entry.change) == (changed.who, changed.what)


def test_a_ledger_that_is_made_again_knows_what_was_reported(import_zone: Any) -> None:
    pin(import_zone)
    change(import_zone, f"pinned exporter z9 {OTHER.hex()}")
    import_zone.run()
    pin(import_zone, "z8", h(b"x"))
    rebuild_ledger(
        import_zone.settings, ImportRequest(operator=import_zone.name), import_zone.around()
    )
    import_zone.run()
    first, second = detail(import_zone)
    assert first.changed_at is not None
    assert f"added exporter z8 {h(b'x').hex()}" in second.change
    assert "z9" not in second.change


def test_nothing_is_reported_twice_though_a_ledger_was_just_made_again_when_it_ended(
    import_zone: Any,
) -> None:
    pin(import_zone)
    change(import_zone, f"pinned exporter z9 {OTHER.hex()}")
    import_zone.run()
    with (
        breakpoints.after(ImportLedger.conclude, breakpoints.interrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        rebuild_ledger(
            import_zone.settings, ImportRequest(operator=import_zone.name), import_zone.around()
        )
    import_zone.run()
    assert len(detail(import_zone)) == 1


def test_the_command_enters_what_the_import_tells(import_zone: Any, tmp_path: Path) -> None:
    import_zone.run()
    handed = tmp_path / "handed"
    handed.mkdir()
    pin_exporter(handed, "z9", OTHER)
    where = [
        "--trust",
        str(import_zone.root / "trust"),
        "--operator",
        f"ann: of {import_zone.name}",
    ]
    for words in (
        ["pin", str(handed)],
        ["revoke", OTHER.hex(), "--reason", "caf\u00e9\nstolen: twice"],
    ):
        subprocess.run(
            [sys.executable, "-m", "cli.main", "bridge", "keys", *words, *where],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
    import_zone.run()
    trust_changes = entered(import_zone.root / "trust")
    assert len(trust_changes) == 2
    import_zone.audits()
    known = [item for item in import_zone.hub.__dict__["audits_read"] if item.KIND == KIND]
    changes = {item.change: item for item in known}
    for change in trust_changes:
        assert changes[change.what].operator == change.who
        assert changes[change.what].changed_at == change.at
    assert not [item for item in known if item.operator == import_zone.name]


@pytest.mark.parametrize(
    "line", ["", "nonsense", "2026-01-01T00:00:00Z ann", "2026-13-01T00:00:00Z ann: x"]
)
def test_a_line_that_is_none_is_nobodys_word(tmp_path: Path, line: str) -> None:
    enter(tmp_path, TrustChange(1_763_000_000, "ann", "revoked x"))
    path = tmp_path / "changes.txt"
    path.write_text(path.read_text() + line + "\n")
    enter(tmp_path, TrustChange(1_763_000_001, "bob", "revoked y"))
    assert entered(tmp_path) == [
        TrustChange(1_763_000_000, "ann", "revoked x"),
        TrustChange(1_763_000_001, "bob", "revoked y"),
    ]
