"""A bundle goes in whole, once, with its evidence, and says so; so it does twice (I32, O6)."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from bridge.carrier.format import Preset
from bridge.carrier.writer import Content, stage
from bridge.importer.directory import ImporterBusy
from bridge.importer.ledger import ImportLedger
from support.bridge import bridge_world, import_yard


def test_a_bundle_goes_in_and_is_audited_archived_and_receipted(zone: Any) -> None:
    medium = zone.medium(1, 5)
    before = import_yard.tree(medium)
    assert zone.states(medium) == ["imported"]
    assert zone.kinds() == ["import.begin", "import.success"]
    zone.check([1, 2, 3, 4, 5])
    assert import_yard.tree(medium) == before
    (archived,) = zone.files("archive")
    assert zone.files("receipts") == [f"{archived}.svg", f"{archived}.txt"]
    assert zone.files("inbox") == []


def test_i32_a_run_that_is_repeated_while_the_first_lives_does_no_harm(
    zone: Any, zygote: Any
) -> None:
    """A scheduler that believes its first task dead starts a second one, and a third."""
    medium = zone.medium(1, 4)
    child = zygote.start(zone, medium)
    os.kill(child, signal.SIGSTOP)
    with suppress(ImporterBusy):
        zone.run(medium)
    os.kill(child, signal.SIGCONT)
    zygote.wait()
    zone.run(medium)
    zone.check([1, 2, 3, 4])


def test_o6_everything_once_more_changes_no_event(zone: Any) -> None:
    media = [zone.medium(1, 3), zone.medium(4, 5), zone.medium(6, 9)]
    assert zone.states(*media) == ["imported"] * 3
    events, kinds = zone.imported(), zone.kinds()
    assert zone.states(*media) == ["duplicate"] * 3
    assert zone.imported() == events
    assert zone.kinds() == kinds + ["import.duplicate"] * 3
    zone.check(list(range(1, 10)))


def test_a_heartbeat_is_noted_and_imports_nothing(zone: Any, tmp_path: Path) -> None:
    checkpoint = zone.world.grow(2).checkpoint()
    (tmp_path / "beat").write_bytes(checkpoint.encode())
    (tmp_path / "medium").mkdir()
    ledger = zone.ledger.with_heartbeat(checkpoint)
    content = Content(file=tmp_path / "beat", ledger=ledger)
    stage(content, Preset.ANY.packing(), bridge_world.EXPORTER, tmp_path / "medium")
    assert zone.states(tmp_path / "medium") == ["heartbeat"]
    assert zone.kinds() == ["import.heartbeat"]
    for _ in range(2):
        assert zone.states(tmp_path / "medium") == ["duplicate"]
    assert zone.kinds()[1:] == ["import.heartbeat.duplicate"] * 2
    assert len(zone.files("archive")) == 1
    with ImportLedger(zone.import_dir.ledger) as import_ledger:
        assert [entry.n for _, entry in import_ledger.carrier_entries()] == [1]
    zone.check([])
