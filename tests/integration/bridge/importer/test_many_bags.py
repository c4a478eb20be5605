"""Media and inboxes with more in them than anybody looks at together (I29)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bridge.carrier.format import Packing
from bridge.carrier.medium import MOST_ON_MEDIUM
from bridge.importer.importer import groups
from bridge.importer.staging import bags_on
from support.bridge import importing_zone
from support.long_form import LONG


def test_a_medium_with_ten_thousand_bags_is_listed_in_the_order_of_its_bundles(
    tmp_path: Path,
) -> None:
    for number in range(1, 10_001):
        (tmp_path / f"3f2a90-c41b07-{number}-{number % 7}a").mkdir()
    paths = bags_on(tmp_path)
    assert [int(path.name.split("-")[2]) for path in paths] == list(range(1, 10_001))


def test_a_medium_is_taken_in_a_portion_at_a_time(import_zone: Any) -> None:
    count = 1100 if LONG else 7
    medium = import_zone.root / "many"
    medium.mkdir()
    for number in range(count):
        (bag,) = import_zone.medium(2 * number + 1, 2 * number + 2).iterdir()
        bag.rename(medium / bag.name)
    if not LONG:
        import_zone.write_settings(importing="batch_bags = 3")
    inbox: list[int] = []
    watch = importing_zone.when_it_begins(
        "copying", lambda: inbox.append(len(import_zone.files("inbox")))
    )
    assert import_zone.states(medium, watch=watch) == ["imported"] * count
    assert max(inbox) == import_zone.settings.importing.batch_bags
    assert import_zone.kinds().count("import.waiting") == 0
    import_zone.check(list(range(1, 2 * count + 1)))


def test_a_set_whose_bags_come_in_several_portions_goes_in(import_zone: Any) -> None:
    medium = import_zone.carry(
        import_zone.bundle(1, 5), Packing(volume_bytes=1200, volumes_per_bag=1)
    )
    assert len(list(medium.iterdir())) > 3
    import_zone.write_settings(importing="batch_bags = 2")
    assert import_zone.states(medium) == ["imported"]
    import_zone.check([1, 2, 3, 4, 5])


@pytest.fixture
def hostile() -> Iterator[Path]:
    """A medium in memory, if the system has such a directory: it gets very many entries."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


def test_a_medium_beyond_all_bounds_is_refused_and_audited_and_the_inbox_goes_on(
    import_zone: Any, hostile: Path
) -> None:
    for number in range(MOST_ON_MEDIUM + 1):
        (hostile / f"{number}").symlink_to("nowhere")
    (bag,) = import_zone.medium(1, 3).iterdir()
    import_zone.import_dir.create()
    bag.rename(import_zone.import_dir.inbox / bag.name)
    other = import_zone.medium(4, 5)
    refused, *others = import_zone.run(hostile, other).outcomes
    assert (refused.state.value, refused.code) == ("refused", "E.FORMAT/MEDIUM")
    assert [other.state.value for other in others] == ["imported", "imported"]
    (entry,) = (audit for audit in import_zone.audits() if audit.KIND == "import.failed")
    assert f"more than {MOST_ON_MEDIUM} entries" in entry.detail
    import_zone.presented.pop(hostile)
    import_zone.check([1, 2, 3, 4, 5])


def test_what_stays_in_the_inbox_is_in_nobodys_way(import_zone: Any) -> None:
    """More bags than were once looked at, none of them whole; the sound one is the last."""
    import_zone.import_dir.create()
    for number in range(1100):
        (import_zone.import_dir.inbox / f"{number:05d}").mkdir()
    (bag,) = import_zone.medium(1, 3).iterdir()
    bag.rename(import_zone.import_dir.inbox / "zz")
    result = list(groups(import_zone.import_dir.inbox))
    assert len(result) == 1101
    assert "zz" in {item.name for item in result}


def test_a_carrier_goes_in_beside_many_that_are_not_whole(import_zone: Any) -> None:
    import_zone.import_dir.create()
    count = 1100 if LONG else 5
    for number in range(count):
        (import_zone.import_dir.inbox / f"{number:05d}").mkdir()
    (bag,) = import_zone.medium(1, 3).iterdir()
    bag.rename(import_zone.import_dir.inbox / "zz")
    assert sorted(import_zone.states()) == ["imported", *["incomplete"] * count]
    assert import_zone.states() == ["incomplete"] * count
    assert import_zone.kinds().count("import.failed") == count
    import_zone.check([1, 2, 3])


def test_names_that_are_numbers_or_none_have_an_order(tmp_path: Path) -> None:
    names = ["10", "2", "a-10", "a-2", "٣", "a", "1" * 200]
    for name in names:
        (tmp_path / name).mkdir()
    result = [bag.name for bag in bags_on(tmp_path)]
    assert result.index("2") < result.index("10")
    assert result.index("a-2") < result.index("a-10")
