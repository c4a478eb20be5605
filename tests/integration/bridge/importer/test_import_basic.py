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
from support.bridge import bridge_world, importing_zone


def test_a_bundle_goes_in_and_is_audited_archived_and_receipted(import_zone: Any) -> None:
    medium = import_zone.medium(1, 5)
    before = importing_zone.tree(medium)
    assert import_zone.states(medium) == ["imported"]
    assert import_zone.kinds() == ["import.begin", "import.success"]
    import_zone.check([1, 2, 3, 4, 5])
    assert importing_zone.tree(medium) == before
    (archived,) = import_zone.files("archive")
    assert import_zone.files("receipts") == [f"{archived}.svg", f"{archived}.txt"]
    assert import_zone.files("inbox") == []


def test_i32_a_run_that_is_repeated_while_the_first_lives_does_no_harm(
    import_zone: Any, import_runner: Any
) -> None:
    """A scheduler that believes its first task dead starts a second one, and a third."""
    medium = import_zone.medium(1, 4)
    child = import_runner.start(import_zone, medium)
    os.kill(child, signal.SIGSTOP)
    with suppress(ImporterBusy):
        import_zone.run(medium)
    os.kill(child, signal.SIGCONT)
    import_runner.wait()
    import_zone.run(medium)
    import_zone.check([1, 2, 3, 4])


def test_o6_everything_once_more_changes_no_event(import_zone: Any) -> None:
    media = [import_zone.medium(1, 3), import_zone.medium(4, 5), import_zone.medium(6, 9)]
    assert import_zone.states(*media) == ["imported"] * 3
    events, kinds = import_zone.imported(), import_zone.kinds()
    assert import_zone.states(*media) == ["duplicate"] * 3
    assert import_zone.imported() == events
    assert import_zone.kinds() == kinds + ["import.duplicate"] * 3
    import_zone.check(list(range(1, 10)))


def test_a_heartbeat_is_noted_and_imports_nothing(import_zone: Any, tmp_path: Path) -> None:
    checkpoint = import_zone.world.grow(2).checkpoint()
    (tmp_path / "beat").write_bytes(checkpoint.encode())
    (tmp_path / "medium").mkdir()
    ledger = import_zone.ledger.with_heartbeat(checkpoint)
    content = Content(file=tmp_path / "beat", ledger=ledger)
    stage(content, Preset.ANY.packing(), bridge_world.EXPORTER, tmp_path / "medium")
    assert import_zone.states(tmp_path / "medium") == ["heartbeat"]
    assert import_zone.kinds() == ["import.heartbeat"]
    for _ in range(2):
        assert import_zone.states(tmp_path / "medium") == ["duplicate"]
    assert import_zone.kinds()[1:] == ["import.heartbeat.duplicate"] * 2
    assert len(import_zone.files("archive")) == 1
    with ImportLedger(import_zone.import_dir.ledger) as import_ledger:
        assert [entry.n for _, entry in import_ledger.carrier_entries()] == [1]
    import_zone.check([])
