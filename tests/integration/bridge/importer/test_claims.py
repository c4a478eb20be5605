"""What the audit log says of a carrier that is refused before its bundle is known (D67)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.audit_log import ImportBlocked, ImportQuarantined, parse
from bridge.carrier.codec import Sealing
from bridge.carrier.format import Preset
from support.bridge import bridge_world
from veen.crypto import hpke_public_key
from veen.digest import h
from veen.errors import Malformed
from veen.events import RecordEvent
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor


def spoil(medium: Path, name: str) -> None:
    path = next(medium.rglob(name))
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))


def entry_of(zone: Any, medium: Path) -> ImportQuarantined:
    (outcome,) = zone.run(medium).outcomes
    assert outcome.state.value == "quarantined"
    (entry,) = zone.audits()
    assert isinstance(entry, ImportQuarantined)
    return entry


def test_damage_behind_a_signature_that_holds_is_reported_with_what_is_claimed(
    import_zone: Any,
) -> None:
    raw = import_zone.bundle(5, 9)
    medium = import_zone.carry(raw)
    spoil(medium, "v001.agv")
    entry = entry_of(import_zone, medium)
    claimed = (entry.bundle_id, entry.source_hub_id, entry.stream, entry.from_seq, entry.to_seq)
    header = bridge_world.parts(raw)[0]
    assert claimed == (
        header.bundle_id,
        bridge_world.IDENTITY.hub_id,
        import_zone.world.stream,
        5,
        9,
    )
    assert entry.is_claimed
    assert import_zone.files("quarantine") != [bridge_world.bundle_id_of(raw).hex()]
    import_zone.check([])


def test_nothing_is_claimed_where_no_signature_holds(import_zone: Any) -> None:
    medium = import_zone.medium(5, 9)
    spoil(medium, "carrier.sig")
    entry = entry_of(import_zone, medium)
    assert (entry.bundle_id, entry.stream, entry.from_seq) == (None, None, None)
    assert not entry.is_claimed
    import_zone.check([])


@pytest.mark.parametrize(("has_key", "first"), [(True, 5), (False, None)])
def test_a_sealed_ledger_claims_what_it_says_once_it_is_opened(
    import_zone: Any, has_key: bool, first: int | None
) -> None:
    header, events, proof = bridge_world.parts(import_zone.bundle(5, 9))
    events[2], events[3] = events[3], events[2]
    forged = bridge_world.reseal(header, events, proof)
    private = h(b"zone key")
    (import_zone.root / "zone.key").write_text(private.hex())
    import_zone.write_settings(importing='zone_keys = ["zone.key"]' if has_key else "")
    sealing = Sealing(hpke_public_key(private), h(b"ephemeral"))
    ledger = import_zone.ledger.with_bundle(bridge_world.parts(forged)[0])
    medium = import_zone.carry(forged, Preset.ANY.packing(), sealing, ledger)
    entry = entry_of(import_zone, medium)
    assert (entry.from_seq, entry.is_claimed) == (first, has_key)
    assert entry.position == (2 if has_key else None)
    import_zone.check([])


def test_a_bundle_that_waits_still_waits_when_a_damaged_copy_of_it_comes(import_zone: Any) -> None:
    raw = import_zone.bundle(5, 9)
    sound, damaged = import_zone.carry(raw), import_zone.carry(raw, ledger=import_zone.ledger)
    assert import_zone.states(sound) == ["waiting"]
    spoil(damaged, "v001.agv")
    assert import_zone.states(damaged) == ["quarantined"]
    assert len(import_zone.files("waiting")) == 1
    assert import_zone.states(import_zone.medium(1, 4)) == ["imported", "imported"]
    import_zone.check([1, 2, 3, 4, 5, 6, 7, 8, 9])


def written(document: dict[str, Any], kind: str) -> RecordEvent:
    return RecordEvent(
        subject_id="bridge",
        principal_id=bytes(32),
        event_type=kind,
        event_time=1,
        origin="z2",
        payload=AnyItem(value_to_cbor(document)),
    )


def test_entries_of_an_earlier_version_are_read() -> None:
    new = ImportBlocked(
        operator="ann", bundle_id=bytes(32), sha256=bytes(32), source_hub_id=bytes(32),
        stream="export/z1", from_seq=1, to_seq=2, count=2, by="scan", detail="a virus",
    )  # fmt: skip
    old = new.document()
    del old["decision"]
    result = parse(written(old, new.KIND))
    assert result == new
    assert isinstance(result, ImportBlocked)
    assert result.is_excluded
    with pytest.raises(Malformed, match="expected an object of"):
        parse(written(old | {"colour": "red"}, new.KIND))
    del old["by"]
    with pytest.raises(Malformed, match="expected an object of"):
        parse(written(old, new.KIND))
