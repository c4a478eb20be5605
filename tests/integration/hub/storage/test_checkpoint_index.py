"""The checkpoint index of a label: torn appends, stale extents, growth, and older directories."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from hub.storage.checkpoint_index import add_line, last_listed, merge_late, read_index, settle_index
from hub.storage.datadir import DataDir
from hub.storage.index import NO_EXTENT, Index, IndexExtent
from hub.storage.label_log import Damaged
from support.hub import driven_hub
from support.hub.counted import CountedIo, counted_io
from support.long_form import LONG
from veen.digest import h
from veen.log import layout
from veen.log.checkpoint_index import encode_count, encode_line
from veen.log.chunk import CheckpointRef, decode_checkpoint_index, encode_checkpoint_index

LABEL = h(b"label")
STREAM = driven_hub.STREAMS[0]


def a_ref(upto: int) -> CheckpointRef:
    return CheckpointRef(
        mmr_root=h(str(upto).encode()),
        start_seq=max(1, upto - 7),
        end_seq=upto,
        peaks_ref=layout.peaks(LABEL, upto),
    )


@pytest.fixture
def datadir(tmp_path: Path) -> DataDir:
    directory = DataDir(tmp_path / "hub")
    directory.create()
    return directory


def add(datadir: DataDir, known: IndexExtent, *uptos: int) -> IndexExtent:
    for upto in uptos:
        known = add_line(datadir, LABEL, upto, a_ref(upto), known)
    return known


def main_file(datadir: DataDir) -> Path:
    return datadir.file(layout.checkpoint_index(LABEL))


def expected(*uptos: int) -> bytes:
    return encode_checkpoint_index({upto: a_ref(upto) for upto in sorted(uptos)})


@pytest.mark.parametrize("knows", ["the extent", "nothing"])
def test_a_line_torn_at_any_byte_is_cut(datadir: DataDir, knows: str) -> None:
    known = add(datadir, NO_EXTENT, 8, 16)
    torn = encode_line(24, a_ref(24))
    for cut in range(1, len(torn)):
        main_file(datadir).write_bytes(expected(8, 16) + torn[:cut])
        add(datadir, known if knows == "the extent" else NO_EXTENT, 32)
        assert main_file(datadir).read_bytes() == expected(8, 16, 32)


@pytest.mark.parametrize("knows", ["the extent", "nothing"])
@pytest.mark.parametrize("hole", [True, False])
def test_a_line_that_was_not_counted_is_counted_or_cut(
    datadir: DataDir, knows: str, hole: bool
) -> None:
    """A block that reached the disk while the one before it did not leaves zeros."""
    known = add(datadir, NO_EXTENT, 8, 16)
    line = encode_line(24, a_ref(24))
    line = bytes(20) + line[20:] if hole else line
    main_file(datadir).write_bytes(expected(8, 16) + line)
    extent = known if knows == "the extent" else NO_EXTENT
    assert add(datadir, extent, 24).lines == 3
    assert main_file(datadir).read_bytes() == expected(8, 16, 24)


def test_a_late_line_torn_at_any_byte_is_cut(datadir: DataDir) -> None:
    known = add(datadir, NO_EXTENT, 8, 16, 3)
    late = datadir.file(layout.late_checkpoints(LABEL))
    before, torn = late.read_bytes(), encode_line(5, a_ref(5))
    for cut in range(1, len(torn)):
        late.write_bytes(before + torn[:cut])
        add(datadir, known, 5)
        assert late.read_bytes() == before + torn


@pytest.mark.parametrize(
    "stale",
    [NO_EXTENT, IndexExtent(2, 10**6, 10**6), IndexExtent(1, 200, 7), IndexExtent(9, 331, 0)],
)
def test_an_extent_of_another_time_is_not_believed(datadir: DataDir, stale: IndexExtent) -> None:
    add(datadir, NO_EXTENT, 8, 16, 24, 3)
    extent = add(datadir, stale, 32, 5)
    assert read_index(datadir, LABEL) == {upto: a_ref(upto) for upto in (3, 5, 8, 16, 24, 32)}
    assert extent == settle_index(datadir, LABEL)


def test_a_damaged_index_takes_no_more_lines(datadir: DataDir) -> None:
    add(datadir, NO_EXTENT, 8, 16, 24)
    whole = main_file(datadir).read_bytes()
    for raw in (whole[:200], b"\xbf" + whole[1:], encode_count(9) + whole[1:], b"\x00" * 40):
        main_file(datadir).write_bytes(raw)
        with pytest.raises(Damaged, match="veen hub rebuild"):
            add(datadir, NO_EXTENT, 32)
        assert main_file(datadir).read_bytes() == raw


def test_another_line_for_the_same_size_is_refused(datadir: DataDir) -> None:
    known = add(datadir, NO_EXTENT, 8, 16, 3)
    for upto in (16, 8, 3):
        with pytest.raises(Damaged, match=f"the line of {upto} has root"):
            add_line(datadir, LABEL, upto, a_ref(upto + 1), known._replace(late_size=0))


def test_the_head_grows_with_the_lines(datadir: DataDir) -> None:
    known = NO_EXTENT
    for upto in range(1, 260):
        known = add(datadir, known, upto)
        if upto in (1, 23, 24, 25, 255, 256, 257):
            assert main_file(datadir).read_bytes() == expected(*range(1, upto + 1))
    assert known == IndexExtent(259, main_file(datadir).stat().st_size, 0)
    assert last_listed(datadir, LABEL) == 259


def test_any_order_of_lines_gives_the_index_of_the_oracle(datadir: DataDir) -> None:
    """Sizes in any order, added again, with extents that a power cut took back, and merges."""
    for seed in range(40 if LONG else 8):
        chance, history = random.Random(seed), [NO_EXTENT]
        listed: set[int] = set()
        for path in datadir.log.iterdir():
            path.unlink()
        for _ in range(120):
            upto = chance.choice([max(listed, default=0) + 1, chance.randint(1, 400)])
            known = history[-1] if chance.random() < 0.8 else chance.choice(history)
            history.append(add(datadir, known, upto))
            listed.add(upto)
            assert last_listed(datadir, LABEL) == max(decode_main(datadir))
            if chance.random() < 0.05:
                merge_late(datadir, LABEL)
                history.append(settle_index(datadir, LABEL))
                assert main_file(datadir).read_bytes() == expected(*listed)
        assert read_index(datadir, LABEL) == {upto: a_ref(upto) for upto in sorted(listed)}
        merge_late(datadir, LABEL)
        assert main_file(datadir).read_bytes() == expected(*listed)


def decode_main(datadir: DataDir) -> dict[int, CheckpointRef]:
    return decode_checkpoint_index(main_file(datadir).read_bytes())


# The hub


@pytest.fixture
def filled(hub_bench: Any) -> Any:
    hub_bench.client = driven_hub.a_key("client")
    hub_bench.token = hub_bench.authorize(hub_bench.client)
    hub_bench.send(hub_bench.client, STREAM, hub_bench.token, 19)
    return hub_bench


def index_of(bench: Any) -> Path:
    return Path(bench.datadir.file(layout.checkpoint_index(bench.label(STREAM))))


def late_of(bench: Any) -> Path:
    return Path(bench.datadir.file(layout.late_checkpoints(bench.label(STREAM))))


def test_a_checkpoint_behind_the_last_waits_for_the_stop(filled: Any) -> None:
    """Until then it is a late line, which verify takes as well."""
    for upto in (3, 19, 11):
        filled.committer.checkpoint(filled.label(STREAM), upto, filled.now)
    assert sorted(decode_checkpoint_index(index_of(filled).read_bytes())) == [8, 16, 19]
    assert late_of(filled).exists()
    filled.lock.release()
    assert filled.verify().faults == ()
    filled.start()
    filled.stop()
    assert sorted(decode_checkpoint_index(index_of(filled).read_bytes())) == [3, 8, 11, 16, 19]
    assert not late_of(filled).exists()
    assert filled.verify().faults == ()


def test_verify_reports_late_lines_that_are_not_of_the_log(filled: Any) -> None:
    filled.committer.checkpoint(filled.label(STREAM), 3, filled.now)
    filled.lock.release()
    line = late_of(filled).read_bytes()
    for raw in (line[:-1], line + line[:9], line.replace(line[20:30], bytes(10))):
        late_of(filled).write_bytes(raw)
        assert "INDEX" in {fault.code for fault in filled.verify().faults}
    late_of(filled).write_bytes(line)
    assert filled.verify().faults == ()


def test_a_merge_that_was_cut_short_is_finished(filled: Any) -> None:
    filled.committer.checkpoint(filled.label(STREAM), 3, filled.now)
    late = late_of(filled).read_bytes()
    filled.stop()
    late_of(filled).write_bytes(late)
    assert filled.verify().faults == ()
    filled.start()
    filled.committer.checkpoint(filled.label(STREAM), 5, filled.now)
    filled.stop()
    assert sorted(decode_checkpoint_index(index_of(filled).read_bytes())) == [3, 5, 8, 16]
    assert filled.verify().faults == ()


def test_rebuild_sets_a_damaged_index_aside_and_the_start_writes_it_again(filled: Any) -> None:
    filled.committer.checkpoint(filled.label(STREAM), 3, filled.now)
    filled.stop()
    whole = index_of(filled).read_bytes()
    damaged = whole[:100] + bytes(30) + whole[130:]
    index_of(filled).write_bytes(damaged)
    assert {fault.code for fault in filled.verify().faults} == {"INDEX"}
    (moved,) = driven_hub.rebuild(filled.root).set_aside
    assert moved.startswith(layout.checkpoint_index(filled.label(STREAM)))
    assert damaged in [path.read_bytes() for path in filled.datadir.evidence.iterdir()]
    filled.start()
    filled.stop()
    assert index_of(filled).read_bytes() == whole
    assert filled.verify().faults == ()


def test_an_index_that_was_lost_is_written_again_after_a_rebuild(filled: Any) -> None:
    filled.stop()
    whole = index_of(filled).read_bytes()
    index_of(filled).unlink()
    driven_hub.rebuild(filled.root)
    filled.start()
    filled.stop()
    assert index_of(filled).read_bytes() == whole


def test_a_directory_with_an_index_of_version_1_verifies_and_is_migrated(filled: Any) -> None:
    filled.stop()
    driven_hub.put_back_index(filled.datadir, 1)
    report = filled.verify()
    assert (report.faults, report.derived) == ((), ())
    filled.start()
    filled.committer.checkpoint(filled.label(STREAM), 19, filled.now)
    filled.stop()
    assert sorted(decode_checkpoint_index(index_of(filled).read_bytes())) == [8, 16, 19]
    report = filled.verify()
    assert (report.faults, report.derived) == ((), ())


def test_a_migration_that_was_cut_short_is_done_again(filled: Any, crash_at: Any) -> None:
    filled.stop()
    driven_hub.put_back_index(filled.datadir, 1)
    with crash_at(1):
        filled.start()
    filled.start()
    filled.stop()
    assert filled.verify().derived == ()


def test_a_later_version_is_refused(filled: Any) -> None:
    filled.stop()
    index = Index(filled.datadir.index, writable=True)
    index._db.execute("UPDATE meta SET value = 99 WHERE key = 'version'")
    index.close()
    with pytest.raises(Exception, match="veen hub rebuild"):
        filled.start()


def test_a_checkpoint_costs_the_same_after_many(filled: Any) -> None:
    """Bytes and calls of a checkpoint at the end, and of one behind the last."""
    costs = []
    for size in (40, 1_600 if not LONG else 16_000):
        while (head := filled.committer.log.label(filled.label(STREAM)).head_seq) < 2 * size:
            filled.send(filled.client, STREAM, filled.token, 2)
            filled.committer.checkpoint(filled.label(STREAM), head + 2, filled.now)
        filled.send(filled.client, STREAM, filled.token, 3)
        costs.append([counted_checkpoint(filled, upto) for upto in (head + 3, size + 2)])
    small, large = costs
    for before, after in zip(small, large, strict=True):
        assert after.bytes_read - before.bytes_read < 20_000
        assert after.bytes_written - before.bytes_written < 20_000
        assert after.calls - before.calls < 60
    filled.stop()
    assert filled.verify().faults == ()
    assert index_of(filled).stat().st_size > 200_000


def counted_checkpoint(bench: Any, upto: int) -> CountedIo:
    return counted_io(lambda: bench.committer.checkpoint(bench.label(STREAM), upto, bench.now))
