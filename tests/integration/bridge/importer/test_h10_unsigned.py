"""H10: nothing that no trusted exporter has signed is copied or kept; quotas and a reserve hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.carrier.format import Packing
from bridge.importer.quarantine import MOST_ENTRIES
from bridge.importer.run import ImportRequest, run_import
from bridge.importer.staging import bytes_below
from bridge.trust import pin_exporter
from support.bridge import bridge_world, importing_zone
from veen.crypto import SigningKey
from veen.digest import h

JUNK = 3 << 20
SMALL = Packing(volume_bytes=1200)


def bag_of(medium: Path) -> Path:
    (bag,) = medium.iterdir()
    return bag


def reasons(zone: Any) -> list[dict[str, Any]]:
    folder = zone.import_dir.root / "quarantine"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/reason.json"))]


def _unknown_exporter(zone: Any, _bag: Path) -> str:
    (zone.root / "trust" / "exporter-z1.pub").unlink()
    pin_exporter(zone.root / "trust", "other", SigningKey(h(b"other")).public)
    return "E.AUTH/SIGNER"


def _no_valid_signature(_zone: Any, bag: Path) -> str:
    raw = bytearray((bag / "carrier.sig").read_bytes())
    raw[-1] ^= 1
    (bag / "carrier.sig").write_bytes(raw)
    return "E.SIG/CARRIER_SIG"


def _changed_tag_file(_zone: Any, bag: Path) -> str:
    (bag / "LABEL.txt").write_bytes(b"")
    return "E.SIG/TAG_FILE"


@pytest.mark.parametrize("way", ["medium", "inbox"])
@pytest.mark.parametrize("trick", [_unknown_exporter, _no_valid_signature, _changed_tag_file])
def test_h10_of_an_unsigned_bag_only_hashes_are_kept(
    import_zone: Any, trick: Any, way: str
) -> None:
    medium = import_zone.medium(1, 3)
    bag = bag_of(medium)
    (bag / "data" / "junk.agv").write_bytes(bytes(JUNK))
    code = trick(import_zone, bag)
    import_zone.import_dir.create()
    media: tuple[Path, ...] = (medium,)
    if way == "inbox":
        bag.rename(import_zone.import_dir.inbox / bag.name)
        media = ()
    (outcome,) = import_zone.run(*media).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", code)
    assert bytes_below(import_zone.import_dir.root) < JUNK
    assert import_zone.files("inbox") == []
    (reason,) = reasons(import_zone)
    assert (reason["code"], reason["stored"]) == (code, "hashes")
    due = h((medium / outcome.name / "carrier.sig").read_bytes()).hex() if media else "carrier.sig"
    assert any(due in line for line in reason["hashes"])
    assert f"{JUNK} bytes  data/junk.agv\n" in reason["hashes"]
    assert [
        path.name for path in import_zone.import_dir.quarantine("").rglob("*") if path.is_file()
    ] == ["reason.json"]
    import_zone.check([])
    assert len(reasons(import_zone)) == 1


def test_h10_what_lies_beside_signed_volumes_is_not_copied(import_zone: Any) -> None:
    medium = import_zone.carry(import_zone.bundle(1, 5), SMALL)
    data = bag_of(medium) / "data"
    volume = (data / "v002.agv").read_bytes()
    forged = volume[:86] + bytes(len(volume) - 86)
    for number in range(5):
        (data / f"a{number}.agv").write_bytes(forged)
    (data / "junk.agv").write_bytes(volume[:86] + bytes(JUNK))
    assert import_zone.states(medium) == ["imported"]
    assert bytes_below(import_zone.import_dir.root / "archive") < JUNK // 2
    names = {path.name for path in (import_zone.import_dir.root / "archive").rglob("*.agv")}
    assert names == {f"v{number:03d}.agv" for number in range(1, len(names) + 1)}
    import_zone.check([1, 2, 3, 4, 5])


def test_h10_a_forged_bag_with_the_table_of_a_sound_one_does_not_take_it_along(
    import_zone: Any,
) -> None:
    bag = bag_of(import_zone.medium(1, 3))
    import_zone.import_dir.create()
    forged = import_zone.import_dir.inbox / "a-forged"
    for path in (path for path in bag.rglob("*") if path.is_file()):
        target = forged / path.relative_to(bag)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    _no_valid_signature(import_zone, forged)
    bag.rename(import_zone.import_dir.inbox / bag.name)
    assert sorted(import_zone.states()) == ["imported", "quarantined"]
    import_zone.check([1, 2, 3])


def test_h10_what_was_checked_on_the_medium_is_checked_again_on_the_copy(import_zone: Any) -> None:
    """Between the check and the copy the medium changes; only the copy counts."""
    medium = import_zone.medium(1, 3)
    sound = {path: path.read_bytes() for path in bag_of(medium).rglob("*") if path.is_file()}

    def change() -> None:
        for path, raw in sound.items():
            path.write_bytes(bytes(len(raw)))

    result = run_import(
        import_zone.settings,
        ImportRequest(operator=import_zone.name, media=[medium]),
        import_zone.around(),
        retry_policy=importing_zone.HASTY,
        watch=importing_zone.when_it_begins("fetching", change),
    )
    assert [outcome.state.value for outcome in result.outcomes] == ["quarantined"]
    import_zone.check_now([])
    for path, raw in sound.items():
        path.write_bytes(raw)
    assert import_zone.states(medium) == ["imported"]


def test_h10_a_full_quarantine_keeps_hashes_of_what_is_signed(import_zone: Any) -> None:
    import_zone.write_settings(importing="max_quarantine_bytes = 60000")
    for number in (1, 2, 3):
        stranger = bridge_world.World(stream=f"export/stranger-{number}").grow(20)
        (outcome,) = import_zone.run(import_zone.carry(stranger.bundle(1, 20))).outcomes
        assert (outcome.state.value, outcome.code) == ("quarantined", "UNMAPPED")
    stored = [reason.get("stored") for reason in reasons(import_zone)]
    assert "hashes" in stored
    assert None in stored
    assert import_zone.files("inbox") == []
    assert bytes_below(import_zone.import_dir.root / "quarantine") < 60_000 + 3 * 16384
    import_zone.check([])


@pytest.mark.parametrize("bound", ["bytes", "entries"])
def test_h10_an_unsigned_bag_leaves_nothing_but_audit_where_the_quarantine_is_full(
    import_zone: Any, bound: str
) -> None:
    if bound == "bytes":
        import_zone.write_settings(importing="max_quarantine_bytes = 0")
    else:
        for number in range(MOST_ENTRIES):
            import_zone.import_dir.quarantine(str(number)).mkdir(parents=True)
    medium = import_zone.medium(1, 3)
    _no_valid_signature(import_zone, bag_of(medium))
    (outcome,) = import_zone.run(medium).outcomes
    assert outcome.state.value == "quarantined"
    assert reasons(import_zone) == []
    (entry,) = (audit for audit in import_zone.audits() if audit.KIND == "import.quarantined")
    assert entry.code == "E.SIG/CARRIER_SIG"
    import_zone.check([])


def test_h10_the_inbox_never_holds_more_than_its_quota(import_zone: Any) -> None:
    media = [import_zone.medium(2 * number + 1, 2 * number + 2) for number in range(3)]
    size = sum(path.stat().st_size for path in media[2].rglob("*.agv"))
    quota = 3 * size
    seen: list[int] = []

    def measure() -> None:
        seen.append(
            sum(path.stat().st_size for path in import_zone.import_dir.inbox.rglob("*.agv"))
        )

    import_zone.write_settings(importing=f"max_inbox_bytes = {quota // 2}")
    watch = importing_zone.when_it_begins("copying", measure)
    assert import_zone.states(*media, watch=watch) == ["imported"] * 3
    assert len(seen) > 1
    assert max(seen) <= quota // 2
    import_zone.write_settings(importing="max_inbox_bytes = 100")
    (outcome,) = import_zone.run(import_zone.medium(7, 8)).outcomes
    assert (outcome.state.value, outcome.code) == ("incomplete", "NO_ROOM")
    assert "max_inbox_bytes" in outcome.detail
    assert import_zone.files("inbox") == []


def test_h10_the_reserve_is_never_used_up(
    import_zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium, free = import_zone.medium(1, 3), 64 << 20
    import_zone.write_settings(importing=f"reserve_bytes = {free}")
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))
        (outcome,) = import_zone.run(medium).outcomes
    assert (outcome.code, import_zone.files("inbox")) == ("NO_ROOM", [])
    import_zone.write_settings(importing="reserve_bytes = 0")
    with monkeypatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))
        assert import_zone.states(medium) == ["imported"]
