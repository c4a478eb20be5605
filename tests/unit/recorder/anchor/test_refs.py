"""The anchors beside checkpoints: the last one is found from the newest on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from recorder.anchor.anchors import Refs
from recorder.checkpoints.catalogue import RecorderCheckpointName
from recorder.checkpoints.store import CheckpointDirectory

NAMES = [RecorderCheckpointName(at, at.to_bytes(32, "big")) for at in range(1, 101)]


@pytest.fixture
def refs(tmp_path: Path) -> Refs:
    return Refs(CheckpointDirectory(tmp_path), bytes(32), None)


@pytest.mark.parametrize("anchored", [(), (1,), (100,), (3, 60, 61), tuple(range(1, 98))])
def test_finds_what_came_after_the_last_anchor(refs: Refs, anchored: tuple[int, ...]) -> None:
    for at in anchored:
        refs.add(NAMES[at - 1].checkpoint_id, "file", b"anchor")
    last = max(anchored, default=0)
    assert list(refs.after_last(NAMES)) == [item for item in NAMES if item.created_at > last]
    assert refs.anchored() == {NAMES[at - 1].checkpoint_id for at in anchored}


def test_a_folder_without_an_anchor_is_none(refs: Refs, tmp_path: Path) -> None:
    CheckpointDirectory(tmp_path).anchors_of(NAMES[0].checkpoint_id).mkdir(parents=True)
    assert refs.after_last(NAMES[:1]) == NAMES[:1]


class Listed:
    """Counts the folders that are listed while it is told to; Python tells of each of them."""

    def __init__(self) -> None:
        self.count = 0
        self._counts = True
        sys.addaudithook(self._heard)

    def stop(self) -> int:
        self._counts = False
        return self.count

    def _heard(self, event: str, _args: tuple[Any, ...]) -> None:
        self.count += self._counts and event == "os.listdir"


def test_looks_at_no_more_than_it_tells_of(refs: Refs) -> None:
    for name in NAMES[:98]:
        refs.add(name.checkpoint_id, "file", b"anchor")
    listed = Listed()
    assert refs.after_last(NAMES) == NAMES[98:]
    assert listed.stop() == 3
