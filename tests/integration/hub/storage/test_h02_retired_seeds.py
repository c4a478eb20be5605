"""H02: the seed of a retired hub key is deleted once its overlap is over and nothing needs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.storage import identity
from recorder.archive.escrow import in_use, read_seeds
from support.hub import driven_hub
from veen.errors import Untrusted
from veen.receipt import Receipt

OVERLAP = 100


def rotate(bench: Any, name: bytes = b"new", overlap: int = OVERLAP) -> None:
    bench.stop()
    identity.rotate(bench.datadir, lambda size: name.ljust(size, b"."), bench.now, overlap)
    bench.start()


def seeds(bench: Any) -> list[str]:
    """The key_ids of the seeds in the directory, in the order of the hub's keys."""
    keys = identity.read_identity(bench.datadir).hub_keys
    here = {path.name for path in Path(bench.datadir.keys).iterdir()}
    return [key.key_id.hex() for key in keys if f"hub-{key.key_id.hex()}.key" in here]


@pytest.fixture
def filled(hub_bench: Any) -> Any:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[0]
    token = hub_bench.authorize(client)
    hub_bench.send(client, stream, token, 3)
    hub_bench.more = lambda: hub_bench.send(client, stream, token, 1)
    return hub_bench


def test_h02_a_retired_seed_is_deleted_after_the_overlap(filled: Any) -> None:
    rotate(filled)
    both = seeds(filled)
    filled.now += OVERLAP
    filled.committer.tick(filled.now)
    assert seeds(filled) == both, "the overlap has not ended"
    filled.now += 1
    filled.committer.tick(filled.now)
    assert seeds(filled) == both[1:]
    filled.more()
    label = filled.label(driven_hub.STREAMS[0])
    checkpoint = filled.committer.checkpoint(label, 2, filled.now)
    assert checkpoint.witness_sigs is None
    filled.restart()
    filled.more()
    filled.stop()
    report = filled.verify()
    assert (report.faults, report.notes) == ((), ())
    assert driven_hub.rebuild(filled.root).agreed


def test_h02_a_stopped_hub_is_reported_and_repaired_at_its_next_start(filled: Any) -> None:
    rotate(filled)
    filled.now += OVERLAP + 1
    filled.more()
    filled.stop()
    report = filled.verify()
    assert report.ok
    assert ["retired" in note for note in report.notes] == [True]
    filled.start()
    filled.committer.tick(filled.now)
    assert len(seeds(filled)) == 1


def test_h02_a_seed_that_has_an_epoch_to_close_stays_until_then(tmp_path: Path) -> None:
    limits = replace(driven_hub.LIMITS, max_epoch_skew_sec=3_600)
    bench = driven_hub.Bench(tmp_path / "hub", limits)
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    token = bench.authorize(client)
    bench.now = (bench.now // 3_600 + 1) * 3_600 - 5
    bench.send(client, stream, token, 3)
    old = bench.label(stream)
    bench.now += 10
    rotate(bench, overlap=0)
    bench.now += 2
    bench.committer.tick(bench.now)
    assert bench.committer.log.label(old) is not None
    assert len(seeds(bench)) == 2, "the epoch of the old key is still open"
    bench.now += 7_200
    bench.committer.tick(bench.now)
    assert bench.committer.log.label(old) is None
    assert len(seeds(bench)) == 1
    bench.stop()
    assert bench.verify().faults == ()


def test_h02_receipts_of_a_retired_key_dated_later_are_refused(filled: Any) -> None:
    old = filled.committer.log.keys.current
    rotate(filled)
    filled.now += OVERLAP + 1
    filled.more()
    hub = filled.committer.log.keys.identity
    label = filled.committer.log.label(filled.label(driven_hub.STREAMS[0]))
    row = filled.committer.log.index.hub_ts(label.label_no, 4)
    assert row == filled.now
    late = Receipt(
        label=label.label, stream_seq=4, leaf_hash=bytes(32), mmr_root=bytes(32), hub_ts=row
    ).signed(old)
    with pytest.raises(Untrusted):
        hub.verify_receipt(late)


def test_h02_a_seed_missing_in_the_overlap_is_reported(
    filled: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rotate(filled)
    old = identity.read_identity(filled.datadir).hub_keys[0]
    filled.stop()
    (filled.datadir.keys / f"hub-{old.key_id.hex()}.key").unlink()
    filled.start()
    assert "lack its witness signature" in caplog.text


def test_h02_an_escrow_holds_no_retired_seed(filled: Any) -> None:
    rotate(filled)
    hub = identity.read_identity(filled.datadir)
    seeds = read_seeds(filled.datadir.keys, hub)
    assert in_use(seeds, hub, filled.now + OVERLAP) == seeds
    assert set(in_use(seeds, hub, filled.now + OVERLAP + 1)) == {hub.current.key_id}
