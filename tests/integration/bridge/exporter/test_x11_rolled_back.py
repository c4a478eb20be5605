"""Row X11 of the failure matrix: a hub that was put back, or tells another history."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.audit_log import AuditPending
from bridge.exporter.build import Cursor, RolledBack, plan
from bridge.exporter.run import latest_checkpoint
from bridge.exporter.state import ExportState
from veen.digest import h
from veen.errors import Untrusted

CHANGES = "export/z1/changes"


def test_x11_a_hub_that_was_put_back_is_not_exported(
    export_zone: Any, new_medium: Callable[[], Path], tmp_path: Path
) -> None:
    assert export_zone.hub.stop() == 0
    shutil.copytree(export_zone.hub.data, tmp_path / "backup")
    export_zone.hub.start()
    export_zone.export(new_medium())
    export_zone.emit(CHANGES, 2)
    export_zone.checkpoint()
    export_zone.export(new_medium())
    assert export_zone.hub.stop() == 0
    shutil.rmtree(export_zone.hub.data)
    shutil.copytree(tmp_path / "backup", export_zone.hub.data)
    export_zone.hub.start()
    medium = new_medium()
    with pytest.raises(Untrusted, match="ends here, although the hub signed") as refused:
        export_zone.export(medium)
    assert list(medium.iterdir()) == []
    assert "entries for bridge/online/log wait on disk" in refused.value.__notes__[0]
    with pytest.raises(AuditPending):
        export_zone.export(medium)
    # The exporter knows it by its own memory, too, whatever became of that of its client.
    with (
        export_zone.client("admin") as client,
        pytest.raises(Untrusted, match=r"created_at \d+ is before"),
    ):
        latest_checkpoint(client.meet(), ExportState(export_zone.settings().exporting.state))


def test_x11_a_stream_that_ends_before_the_cursor_is_refused(export_zone: Any) -> None:
    checkpoint = export_zone.checkpoint()
    end = checkpoint.end(CHANGES)
    with pytest.raises(RolledBack, match=f"up to {end.last_seq + 1} and ends at {end.last_seq}"):
        plan(CHANGES, Cursor(end.last_seq + 1, h(b"root")), checkpoint, 5)
    with pytest.raises(RolledBack, match="another root"):
        plan(CHANGES, Cursor(end.last_seq, h(b"root")), checkpoint, 5)
    assert plan(CHANGES, Cursor(end.last_seq, end.mmr_root), checkpoint, 5) is None
