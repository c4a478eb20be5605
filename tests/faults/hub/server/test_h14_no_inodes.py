"""H14: a running hub on a disk without inodes answers E.UNAVAILABLE, lives, and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.hub import hub_process, small_disk, spec_objects


def test_h14_a_hub_without_inodes_answers_and_goes_on(tmp_path: Path, refused: Any) -> None:
    with (
        small_disk.mounted(tmp_path / "disk", inodes=500, size="256m") as disk,
        hub_process.hub_in(disk / "hub") as hub,
    ):
        client, key = hub.client(), spec_objects.key("writer")
        old, new = client.writer(key, "record/old"), client.writer(key, "record/new")
        first = client.submit(old.msg(b"first"))
        inodes = small_disk.Inodes(disk)
        inodes.take_all_but(0)
        message = new.msg(b"a label of its own needs files")
        for _ in range(3):
            with refused("E.UNAVAILABLE/"):
                client.submit(message)
            with refused("E.UNAVAILABLE/"):
                client.checkpoint(first[1], 1)
        client.submit(old.msg(b"an open chunk needs none"))
        inodes.give_back()
        assert client.submit(message)[2] == 1
        assert client.checkpoint(first[1], 1)
        assert hub.stop() == 0
