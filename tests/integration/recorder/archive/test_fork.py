"""A fork keeps a prefix of a hub and goes on under a key of its own; both sides verify."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
import pytest

from hub.settings import load as load_settings
from hub.storage import retention
from hub.storage.datadir import DataDir
from recorder.archive.restore import CannotCut
from support.hub import spec_objects
from support.recorder import archive_carry
from veen.objects.port import Store


def cut_inside(recorded: Any, store: Store) -> int:
    """A hub_ts that falls into a sealed chunk of the label."""
    archive = archive_carry.archive_of(store)
    label = archive.label(archive.latest(), recorded.label)
    assert label is not None
    inside = next(segment for segment in label.segments[1:] if segment.first_ts < segment.last_ts)
    return int(inside.first_ts)


def ts_of(recorded: Any, place: tuple[bytes, int]) -> int:
    return int(cbor2.loads(recorded.answers[place][0])[5])


def stored(recorded: Any, at: int) -> dict[bytes, int]:
    """How many entries of each label are not after a hub_ts."""
    result: dict[bytes, int] = {}
    for label, seq in recorded.answers:
        result[label] = result.get(label, 0) + (ts_of(recorded, (label, seq)) <= at)
    return result


def test_a_fork_goes_on_under_its_own_key_and_both_sides_verify(
    stopped_hub: Any,
    hub_data: Path,
    store_folder: Path,
    file_store: Store,
    run_hub: Callable[[Path], Any],
    tmp_path: Path,
) -> None:
    archive_carry.push(hub_data, file_store)
    at, to = cut_inside(stopped_hub, file_store), tmp_path / "fork" / "data"
    place = ("--store", store_folder.as_uri(), "--to", to, "--at", at, "--config", stopped_hub.toml)
    done = archive_carry.veen("archive", "fork", *place, "--keys", hub_data / "keys", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    heads = {bytes.fromhex(item["label"]): item["end_seq"] for item in document["heads"]}
    due = stored(stopped_hub, at)
    assert {label: heads.get(label, 0) for label in due} == due
    assert 0 < due[stopped_hub.label] < 36
    hub = run_hub(to)
    client = hub.client()
    old, own = client.hub_pks
    assert (client.hub_id, old) == (stopped_hub.hub_id, stopped_hub.hub_pk)
    for seq in range(1, due[stopped_hub.label] + 1):
        receipt, _ = stopped_hub.answers[stopped_hub.label, seq]
        assert cbor2.dumps(client.receipt(stopped_hub.label, seq)) == receipt
    writer = client.writer(spec_objects.key("alice"), "logs/a")
    writer.seq = writer.prev_ack = due[stopped_hub.label]
    receipts = client.submit_batch([writer.msg(b"another way") for _ in range(12)])
    checkpoint = client.checkpoint(stopped_hub.label, due[stopped_hub.label] + 12)
    assert len(checkpoint) == 7, "witnessed by a key of the original"
    for signed in (*receipts, checkpoint):
        assert spec_objects.signed_by(own, signed[6], signed[:6])
        assert not spec_objects.signed_by(old, signed[6], signed[:6])
    assert receipts[0][2] == due[stopped_hub.label] + 1
    hub.stop()
    assert archive_carry.audit(to, stopped_hub.toml).ok
    assert archive_carry.audit(hub_data, stopped_hub.toml).ok


@pytest.mark.parametrize("turn", range(7))
def test_every_second_of_the_history_is_a_prefix_that_verifies(
    turn: int, stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    times = sorted({ts_of(stopped_hub, place) for place in stopped_hub.answers})
    at = [times[0] - 3_600, *times][turn]
    result = archive_carry.restore(file_store, tmp_path / "fork", at=at)
    due = stored(stopped_hub, at)
    assert {label.label: label.end_seq for label in result.labels if label.label in due} == {
        label: count for label, count in due.items() if count
    }
    audit = archive_carry.audit(tmp_path / "fork", stopped_hub.toml)
    assert audit.faults == ()
    if at == times[-1]:
        assert archive_carry.files(tmp_path / "fork") == archive_carry.files(hub_data)


def test_a_cut_inside_a_pruned_chunk_needs_the_chunk(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    pruned = Path(shutil.copytree(hub_data, tmp_path / "pruned"))
    settings, later = load_settings(stopped_hub.toml), int(time.time()) + 3 * 86_400
    due = retention.plan_retention(DataDir(pruned), settings.retention, settings.streams, later)[:2]
    retention.prune(DataDir(pruned), due, limits=settings.limits, move_to=None, now=later)
    times = sorted({ts_of(stopped_hub, (stopped_hub.label, seq)) for seq in range(11, 21)})
    assert len(times) == 2
    archive_carry.push(pruned, file_store)
    with pytest.raises(CannotCut, match="was pruned before it was archived"):
        archive_carry.restore(file_store, tmp_path / "no", at=times[0])
    archive_carry.push(hub_data, file_store)
    archive_carry.push(pruned, file_store)
    result = archive_carry.restore(file_store, tmp_path / "yes", at=times[0])
    assert {label.label: label.end_seq for label in result.labels}[stopped_hub.label] == 12
    assert archive_carry.audit(tmp_path / "yes", stopped_hub.toml).ok


def test_a_cut_where_the_push_was_not_settled_is_refused(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    archive = archive_carry.archive_of(file_store)
    last = max(label.last_ts for label in archive.labels(archive.latest()))
    unsettled = replace(archive.latest(), unsettled_from=last)
    archive.heads.swap(archive.head(), archive.put_version(unsettled.encode()))
    with pytest.raises(CannotCut, match=f"cut before hub_ts {last}"):
        archive_carry.restore(file_store, tmp_path / "fork", at=last)
    assert archive_carry.restore(file_store, tmp_path / "fork", at=last - 1).last_ts < last


def test_a_fork_without_keys_is_refused(
    hub_data: Path, store_folder: Path, file_store: Store, tmp_path: Path
) -> None:
    archive_carry.push(hub_data, file_store)
    place = ("--store", store_folder.as_uri(), "--to", tmp_path / "fork", "--at", 1)
    done = archive_carry.veen("archive", "fork", *place)
    assert done.returncode == 1
    assert "--client or --keys" in done.stderr
    assert not (tmp_path / "fork").exists()
