"""A directory as the hub left it verifies, and the report says what was read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.fsck.fsck import verify
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLocked
from support.hub import driven_hub
from veen.captoken import Rate
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, VeenError
from veen.hub_identity import encode_journal
from veen.label import DEFAULT_PROFILE
from veen.wire import cbor


def test_a_whole_directory_has_no_fault(golden_hub: Path) -> None:
    report = driven_hub.check(golden_hub)
    assert (report.ok, report.faults, report.notes, report.derived) == (True, (), (), ())
    assert (report.labels, report.entries) == (4, 3 + 24 + 7 + 9)
    assert report.chunks == len([*golden_hub.glob("log/*.log"), *golden_hub.glob("log/*.open")])
    assert report.checkpoints == len([*golden_hub.glob("log/checkpoint-[0-9a-f]*-*.cbor")])


def test_the_report_is_one_json_document(golden_hub: Path) -> None:
    document = json.loads(driven_hub.check(golden_hub).to_json())
    assert document["ok"] is True
    assert sorted(head["head_seq"] for head in document["heads"].values()) == [3, 7, 9, 24]


def test_progress_ends_at_the_whole(golden_hub: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    verify(
        DataDir(golden_hub),
        limits=driven_hub.LIMITS,
        profiles=(DEFAULT_PROFILE, driven_hub.HOURLY),
        streams=driven_hub.STREAMS,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[0][0] == 0
    assert 0 < seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)


def test_refuses_a_directory_that_a_hub_holds(hub_bench: Any) -> None:
    with pytest.raises(DataDirLocked, match="held by another hub"):
        hub_bench.verify()
    hub_bench.stop()
    assert hub_bench.verify().ok


def test_refuses_what_is_no_data_directory(tmp_path: Path) -> None:
    with pytest.raises(VeenError, match="not a data directory"):
        driven_hub.check(tmp_path)


def test_an_unknown_file_is_a_note(hub_copy: Path) -> None:
    (hub_copy / "log" / "readme.txt").write_text("hello")
    report = driven_hub.check(hub_copy)
    assert report.ok
    assert report.notes == ("log/readme.txt: not a file of the log",)


def test_other_limits_than_those_of_the_log_are_a_note(golden_hub: Path) -> None:
    report = driven_hub.check(golden_hub, replace(driven_hub.LIMITS, max_checkpoint_interval=9))
    assert report.ok
    assert all("sealed early" in note for note in report.notes)
    assert report.notes


def test_an_epoch_ends_with_a_checkpoint_and_the_next_one_names_it(hub_bench: Any) -> None:
    stream, client = driven_hub.STREAMS[1], driven_hub.a_key("client")
    token = hub_bench.authorize(client, Rate(per_sec=100, burst=100))
    old = hub_bench.label(stream)
    hub_bench.send(client, stream, token, 3)
    hub_bench.now += 3_600
    hub_bench.committer.tick(hub_bench.now)
    new = hub_bench.label(stream)
    hub_bench.send(client, stream, token, 9)
    assert hub_bench.committer.log.label(old) is None
    hub_bench.stop()
    last = Checkpoint.decode(
        driven_hub.the(hub_bench.root, f"log/checkpoint-{old.hex()}-*").read_bytes()
    )
    first = Checkpoint.decode(
        driven_hub.the(hub_bench.root, f"log/checkpoint-{new.hex()}-*").read_bytes()
    )
    assert (last.upto_seq, first.upto_seq) == (3, 8)
    assert (first.label_prev, first.label_curr) == (old, new)
    assert not list(hub_bench.root.glob(f"log/chunk-{old.hex()}-*.open"))
    assert hub_bench.verify().ok


def test_a_rotated_key_signs_from_then_on(hub_bench: Any) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    token = hub_bench.authorize(client)
    hub_bench.send(client, stream, token, 9)
    hub_bench.stop()
    hub_bench.now += 10
    identity.rotate(hub_bench.datadir, lambda size: b"new".ljust(size, b"."), hub_bench.now, 5)
    hub_bench.start()
    hub_bench.send(client, stream, token, 9)
    hub_bench.now += 3_600
    hub_bench.committer.tick(hub_bench.now)
    hub_bench.stop()
    report = hub_bench.verify()
    assert (report.faults, report.notes, report.derived) == ((), (), ())
    assert driven_hub.rebuild(hub_bench.root).agreed


@pytest.mark.parametrize("encode", [cbor.encode, encode_journal])
def test_a_change_of_identity_cut_short_is_a_note(
    hub_bench: Any, encode: Callable[[list[bytes]], bytes]
) -> None:
    hub_bench.stop()
    names = ("hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor")
    documents = [(hub_bench.root / name).read_bytes() for name in names]
    (hub_bench.root / "hub-identity.next").write_bytes(encode(documents))
    (hub_bench.root / "hub-identity.sig").write_bytes(bytes(64))
    report = hub_bench.verify()
    assert report.ok
    assert len(report.notes) == 1


@pytest.mark.parametrize("journal", [[2, b"", b"", b""], [1, b""], [1, 2, 3, 4], [], 1, b""])
def test_a_journal_of_identity_that_cannot_be_read_is_a_fault(hub_bench: Any, journal: Any) -> None:
    hub_bench.stop()
    (hub_bench.root / "hub-identity.next").write_bytes(cbor.encode(journal))
    assert [(fault.file, fault.code) for fault in hub_bench.verify().faults] == [
        ("hub-identity.next", "IDENTITY")
    ]
    with pytest.raises(Malformed, match=r"hub-identity\.next: "):
        identity.load_or_create(hub_bench.datadir, bytes, hub_bench.now)
