"""What a zone keeps out: excluded events, streams without a route, bags that are no bags
(I27-I29).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.bridge import bridge_world, importing_zone
from veen.receipt import Receipt
from veen.system.config import BadSettings


def test_i27_an_excluded_event_leaves_a_placeholder_with_its_leaf(import_zone: Any) -> None:
    import_zone.write_settings(
        '[[exclusions]]\nprefix = "export/z1"\nevent_type = "config.changed"\nreason = "personal"\n'
    )
    (outcome,) = import_zone.run(import_zone.medium(1, 3)).outcomes
    assert (outcome.state.value, outcome.imported, outcome.excluded) == ("imported", 3, 3)
    excluded = [audit for audit in import_zone.audits() if audit.KIND == "import.excluded"]
    leaves = [Receipt.decode(event.receipt).leaf_hash for event in import_zone.world.events]
    assert [(item.seq, item.leaf_hash, item.reason) for item in excluded] == [
        (seq, leaf, "personal") for seq, leaf in enumerate(leaves, 1)
    ]
    import_zone.check([1, 2, 3], excluded=[1, 2, 3])


def test_i28_two_streams_into_one_are_refused_before_anything_is_done(import_zone: Any) -> None:
    hub_id = import_zone.settings.streams.routes[0].hub_id.hex()
    import_zone.write_settings(
        f'[[streams]]\nhub_id = "{hub_id}"\nsource = "export/z9"\ntarget = "{import_zone.target}"\n'
    )
    medium = import_zone.medium(1, 3)
    with pytest.raises(BadSettings, match="both go into"):
        import_zone.run(medium)
    assert not import_zone.import_dir.root.exists()
    import_zone.write_settings()
    assert import_zone.states() == []
    import_zone.check([])
    assert import_zone.states(medium) == ["imported"]


def test_i28_a_stream_that_nobody_mapped_is_kept_out(import_zone: Any) -> None:
    stranger = bridge_world.World(stream="export/stranger").grow(3)
    (outcome,) = import_zone.run(import_zone.carry(stranger.bundle(1, 3))).outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "UNMAPPED")
    import_zone.check([])


def _link(bag: Path) -> None:
    (bag / "data" / "x.agv").symlink_to("/etc/passwd")


def _link_of_tag(bag: Path) -> None:
    (bag / "LABEL.txt").unlink()
    (bag / "LABEL.txt").symlink_to("/etc/passwd")


def _pipe(bag: Path) -> None:
    os.mkfifo(bag / "data" / "pipe")


def _clash(bag: Path) -> None:
    (bag / "data" / "V001.AGV").write_bytes(b"")


def _clash_of_form(bag: Path) -> None:
    """One letter, written as one character and as two."""
    for name in ("r\u00e9sum\u00e9.agv", "re\u0301sume\u0301.agv"):
        (bag / "data" / name).write_bytes(b"")


def _clash_of_both(bag: Path) -> None:
    for name in ("\u00c9.txt", "e\u0301.TXT"):
        (bag / name).write_bytes(b"")


def _many(bag: Path) -> None:
    for number in range(1100):
        (bag / "data" / f"{number}").touch()


def _linked_data(bag: Path) -> None:
    (bag / "data").rename(bag.parent.parent / "elsewhere")
    (bag / "data").symlink_to(bag.parent.parent / "elsewhere")


@pytest.mark.parametrize("way", ["medium", "inbox"])
@pytest.mark.parametrize(
    "trick",
    [_link, _link_of_tag, _pipe, _clash, _clash_of_form, _clash_of_both, _many, _linked_data],
)
def test_i29_what_no_bag_may_hold_is_never_opened(
    import_zone: Any, trick: Callable[[Path], None], way: str
) -> None:
    medium = import_zone.medium(1, 3)
    (bag,) = medium.iterdir()
    trick(bag)
    before = importing_zone.tree(medium)
    if way == "medium":
        (outcome,) = import_zone.run(medium).outcomes
        assert importing_zone.tree(medium) == before
    else:
        import_zone.import_dir.create()
        bag.rename(import_zone.import_dir.inbox / bag.name)
        (outcome,) = import_zone.run().outcomes
    assert (outcome.state.value, outcome.code) == ("quarantined", "E.FORMAT/MEDIUM")
    assert import_zone.reason()["code"] == "E.FORMAT/MEDIUM"
    import_zone.check([])
