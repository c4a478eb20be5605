"""Pushing beside a hub that is written to all the time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hub.storage.datadir import DataDir
from recorder.archive.push import push
from recorder.archive.source import PushSource
from support.hub import hub_load, spec_objects
from support.long_form import LONG
from support.recorder import archive_carry
from veen.limits import Limits
from veen.log.chunk import read_entries
from veen.objects.port import Store

PUSHES = 40 if LONG else 4


def test_every_state_pushed_beside_a_loaded_hub_is_a_log_that_verifies(
    stopped_hub: Any,
    hub_data: Path,
    file_store: Store,
    run_hub: Callable[..., Any],
    tmp_path: Path,
) -> None:
    toml = tmp_path / "busy.toml"
    roomy = stopped_hub.toml.read_text().replace("interval = 10", "interval = 400")
    toml.write_text(roomy.replace("16384", "262144"))
    hub = run_hub(hub_data, toml)
    client = hub.client()
    token = _token(stopped_hub, client)
    producers = [
        hub_load.Producer(
            client.writer(
                spec_objects.key(f"client {n}"),
                f"record/{n % 3}",
                auth_ref=token if n == 2 else None,
            )
        )
        for n in range(4)
    ]
    ends: list[dict[bytes, int]] = []
    with hub_load.working(hub, producers):
        for turn in range(PUSHES):
            hub_load.wait_for_promises(producers, 8)
            promised = {producer.writer.label: producer.promised[-1][2] for producer in producers}
            archive_carry.push(hub_data, file_store)
            result = archive_carry.restore(
                file_store, tmp_path / f"state {turn}", keys=hub_data / "keys"
            )
            ends.append({label.label: label.end_seq for label in result.labels})
            assert all(ends[-1][label] >= seq for label, seq in promised.items())
    for turn in range(PUSHES):
        audit = archive_carry.audit(tmp_path / f"state {turn}", toml)
        assert audit.faults == ()
        assert {label: head.head_seq for label, head in audit.heads.items()} == ends[turn]
    labels = {producer.writer.label for producer in producers}
    assert all(ends[0][label] < ends[-1][label] for label in labels)
    hub.stop()
    archive_carry.push(hub_data, file_store)
    assert archive_carry.checked(file_store, read_all=True).ok
    archive_carry.restore(file_store, tmp_path / "last")
    assert archive_carry.files(tmp_path / "last") == archive_carry.files(hub_data)


def _token(recorded: Any, client: Any) -> bytes:
    """A capability that comes to be known while others write."""
    subject = bytes(spec_objects.key("client 2").verify_key)
    token = spec_objects.cap_token(
        spec_objects.key("issuer"), subject, ["record/2"], 86_400, (100_000, 100_000)
    )
    client.authorize(token)
    result: bytes = spec_objects.auth_ref(token)
    return result


def test_a_checkpoint_that_is_not_published_yet_is_left_for_the_next_push(
    stopped_hub: Any, hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    """As between two writes of a hub, or after its crash: the file is there, its lines are not."""
    whole = archive_carry.files(hub_data)
    index = next((hub_data / "log").glob(f"checkpoint-index-{stopped_hub.label.hex()}.cbor"))
    source = PushSource(hub_data, Limits())
    lines = source.bindings({(stopped_hub.label, 33)})
    assert lines
    binding = hub_data / "checkpoint-binding.cborseq"
    binding.write_bytes(binding.read_bytes().replace(lines, b""))
    archive_carry.push(hub_data, file_store)
    archive_carry.restore(file_store, tmp_path / "before")
    files = archive_carry.files(tmp_path / "before")
    name = f"log/checkpoint-{stopped_hub.label.hex()}-{33:020}.cbor"
    assert name in whole
    assert name not in files
    assert archive_carry.audit(tmp_path / "before", stopped_hub.toml).faults == ()
    binding.write_bytes(whole["checkpoint-binding.cborseq"])
    assert index.read_bytes() == whole[f"log/{index.name}"]
    archive_carry.push(hub_data, file_store)
    archive_carry.restore(file_store, tmp_path / "after")
    assert archive_carry.files(tmp_path / "after") == whole


def test_what_is_written_during_a_push_makes_its_last_moments_unsettled(
    stopped_hub: Any, hub_data: Path, file_store: Store
) -> None:
    """An entry appears between the copies of two labels, as the sequencer would append it."""
    label = stopped_hub.writers["record/b"].label
    opened = next((hub_data / "log").glob(f"chunk-{label.hex()}-*.open"))
    raw = opened.read_bytes()
    *_, (at, _, _) = read_entries(raw, Limits())
    opened.write_bytes(raw[:at])
    last_ts = PushSource(hub_data, Limits()).moment().last_ts

    def append(_done: int, _total: int | None) -> None:
        opened.write_bytes(raw)

    push(PushSource(hub_data, Limits()), file_store, sealer=None, progress=append)
    archive = archive_carry.archive_of(file_store)
    assert archive.latest().unsettled_from == last_ts
    assert archive_carry.push(hub_data, file_store).new_objects == 1
    assert archive.latest().unsettled_from is None


def test_a_push_does_not_take_the_lock_and_leaves_the_directory_as_it_is(
    hub_data: Path, file_store: Store, tmp_path: Path
) -> None:
    shutil.rmtree(DataDir(hub_data).derived)
    before = {path: path.stat().st_mtime_ns for path in hub_data.rglob("*")}
    archive_carry.push(hub_data, file_store)
    assert {path: path.stat().st_mtime_ns for path in hub_data.rglob("*")} == before
