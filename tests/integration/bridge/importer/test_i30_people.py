"""The scan hook and the people who must agree (I30)."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from bridge.importer.approvals import APPROVE, REJECT, AlreadyDecided, Approval, decide
from support.bridge import bridge_world
from veen.crypto import SigningKey
from veen.digest import h
from veen.system import durable

ALICE, BOB, EVE = (SigningKey(h(name)) for name in (b"alice", b"bob", b"eve"))


HOOKS = {
    "exits with 1": "import sys; print('a virus \\x1b[2J'); sys.exit(1)",
    "crashes": "import os; os.abort()",
    "hangs": "import time; time.sleep(600)",
}


@pytest.mark.parametrize("what", list(HOOKS))
def test_i30_a_scan_that_does_not_pass_blocks(import_zone: Any, what: str) -> None:
    hook = import_zone.root / "hook.py"
    hook.write_text(HOOKS[what])
    import_zone.write_settings(
        importing=f'scan = ["{sys.executable}", "{hook}"]\nscan_timeout_sec = 3'
    )
    (outcome,) = import_zone.run(import_zone.medium(1, 3)).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "SCAN")
    (entry,) = (audit for audit in import_zone.audits() if audit.KIND == "import.blocked")
    assert (entry.by, entry.decision, entry.is_excluded) == ("scan", "refused", True)
    assert entry.detail.isprintable()
    import_zone.check([])


def test_i30_a_scan_sees_the_bundle_and_lets_it_pass(import_zone: Any) -> None:
    hook = import_zone.root / "hook.py"
    hook.write_text("import sys; sys.exit(open(sys.argv[1], 'rb').read(1) != b'\\x83')")
    import_zone.write_settings(importing=f'scan = ["{sys.executable}", "{hook}"]')
    assert import_zone.states(import_zone.medium(1, 3)) == ["imported"]
    import_zone.check([1, 2, 3])


def _with_approvals(zone: Any) -> bytes:
    keys = ", ".join(f'"{item.public.hex()}"' for item in (ALICE, BOB))
    zone.write_settings(f'[[approvals]]\nprefix = "export/"\nneeded = 2\napprovers = [{keys}]\n')
    raw = zone.bundle(1, 3)
    assert zone.states(zone.carry(raw)) == ["blocked"]
    bundle_id: bytes = bridge_world.bundle_id_of(raw)
    return bundle_id


def test_i30_approvals_of_one_person_or_a_stranger_are_not_two(import_zone: Any) -> None:
    bundle_id, folder = _with_approvals(import_zone), import_zone.import_dir.approvals
    decide(folder, Approval.of(ALICE, bundle_id, APPROVE))
    with pytest.raises(AlreadyDecided, match="another person"):
        decide(folder, Approval.of(ALICE, bundle_id, APPROVE))
    decide(folder, Approval.of(EVE, bundle_id, APPROVE))
    twice = folder / bundle_id.hex() / "alice-again.cbor"
    durable.write(twice, Approval.of(ALICE, bundle_id, APPROVE).encode())
    forged = replace(Approval.of(EVE, bundle_id, APPROVE), approver=BOB.public)
    durable.write(folder / bundle_id.hex() / "forged.cbor", forged.encode())
    elsewhere = Approval.of(BOB, h(b"another bundle"), APPROVE)
    durable.write(folder / bundle_id.hex() / "elsewhere.cbor", elsewhere.encode())
    assert import_zone.states() == []
    assert import_zone.kinds() == ["import.blocked"]
    (entry,) = import_zone.audits()
    assert (entry.decision, entry.is_excluded) == ("held", False)
    twice.unlink()
    import_zone.check([])
    decide(folder, Approval.of(BOB, bundle_id, APPROVE))
    assert import_zone.states() == ["imported"]
    import_zone.check([1, 2, 3])


def test_i30_one_rejection_is_enough(import_zone: Any) -> None:
    bundle_id = _with_approvals(import_zone)
    decide(import_zone.import_dir.approvals, Approval.of(ALICE, bundle_id, APPROVE))
    decide(import_zone.import_dir.approvals, Approval.of(BOB, bundle_id, REJECT))
    assert import_zone.states() == ["rejected"]
    assert import_zone.reason()["code"] == "REJECTED"
    import_zone.check([])
