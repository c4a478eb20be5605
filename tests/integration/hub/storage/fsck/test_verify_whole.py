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
from hub.storage.datadir import DataDir, Locked
from support.hub import driven_hub
from veen.captoken import Rate
from veen.checkpoint import Checkpoint
from veen.errors import Malformed, VeenError
from veen.hub_identity import encode_journal
from veen.label import DEFAULT_PROFILE
from veen.wire import cbor


def test_a_whole_directory_has_no_fault(golden: Path) -> None:
    report = driven_hub.check(golden)
    assert (report.ok, report.faults, report.notes, report.derived) == (True, (), (), ())
    assert (report.labels, report.entries) == (4, 3 + 24 + 7 + 9)
    assert report.chunks == len([*golden.glob("log/*.log"), *golden.glob("log/*.open")])
    assert report.checkpoints == len([*golden.glob("log/checkpoint-[0-9a-f]*-*.cbor")])


def test_the_report_is_one_json_document(golden: Path) -> None:
    document = json.loads(driven_hub.check(golden).to_json())
    assert document["ok"] is True
    assert sorted(head["head_seq"] for head in document["heads"].values()) == [3, 7, 9, 24]


def test_progress_ends_at_the_whole(golden: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    verify(
        DataDir(golden),
        limits=driven_hub.LIMITS,
        profiles=(DEFAULT_PROFILE, driven_hub.HOURLY),
        streams=driven_hub.STREAMS,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[0][0] == 0
    assert 0 < seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)


def test_refuses_a_directory_that_a_hub_holds(bench: Any) -> None:
    with pytest.raises(Locked, match="held by another hub"):
        bench.verify()
    bench.stop()
    assert bench.verify().ok


def test_refuses_what_is_no_data_directory(tmp_path: Path) -> None:
    with pytest.raises(VeenError, match="not a data directory"):
        driven_hub.check(tmp_path)


def test_an_unknown_file_is_a_note(copy: Path) -> None:
    (copy / "log" / "readme.txt").write_text("hello")
    report = driven_hub.check(copy)
    assert report.ok
    assert report.notes == ("log/readme.txt: not a file of the log",)


def test_other_limits_than_those_of_the_log_are_a_note(golden: Path) -> None:
    report = driven_hub.check(golden, replace(driven_hub.LIMITS, max_checkpoint_interval=9))
    assert report.ok
    assert all("sealed early" in note for note in report.notes)
    assert report.notes


def test_an_epoch_ends_with_a_checkpoint_and_the_next_one_names_it(bench: Any) -> None:
    stream, client = driven_hub.STREAMS[1], driven_hub.a_key("client")
    token = bench.authorize(client, Rate(per_sec=100, burst=100))
    old = bench.label(stream)
    bench.send(client, stream, token, 3)
    bench.now += 3_600
    bench.committer.tick(bench.now)
    new = bench.label(stream)
    bench.send(client, stream, token, 9)
    assert bench.committer.log.label(old) is None
    bench.stop()
    last = Checkpoint.decode(
        driven_hub.the(bench.root, f"log/checkpoint-{old.hex()}-*").read_bytes()
    )
    first = Checkpoint.decode(
        driven_hub.the(bench.root, f"log/checkpoint-{new.hex()}-*").read_bytes()
    )
    assert (last.upto_seq, first.upto_seq) == (3, 8)
    assert (first.label_prev, first.label_curr) == (old, new)
    assert not list(bench.root.glob(f"log/chunk-{old.hex()}-*.open"))
    assert bench.verify().ok


def test_a_rotated_key_signs_from_then_on(bench: Any) -> None:
    client, stream = driven_hub.a_key("client"), driven_hub.STREAMS[1]
    token = bench.authorize(client)
    bench.send(client, stream, token, 9)
    bench.stop()
    bench.now += 10
    identity.rotate(bench.datadir, lambda size: b"new".ljust(size, b"."), bench.now, 5)
    bench.start()
    bench.send(client, stream, token, 9)
    bench.now += 3_600
    bench.committer.tick(bench.now)
    bench.stop()
    report = bench.verify()
    assert (report.faults, report.notes, report.derived) == ((), (), ())
    assert driven_hub.rebuild(bench.root).agreed


@pytest.mark.parametrize("encode", [cbor.encode, encode_journal])
def test_a_change_of_identity_cut_short_is_a_note(
    bench: Any, encode: Callable[[list[bytes]], bytes]
) -> None:
    bench.stop()
    names = ("hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor")
    documents = [(bench.root / name).read_bytes() for name in names]
    (bench.root / "hub-identity.next").write_bytes(encode(documents))
    (bench.root / "hub-identity.sig").write_bytes(bytes(64))
    report = bench.verify()
    assert report.ok
    assert len(report.notes) == 1


@pytest.mark.parametrize("journal", [[2, b"", b"", b""], [1, b""], [1, 2, 3, 4], [], 1, b""])
def test_a_journal_of_identity_that_cannot_be_read_is_a_fault(bench: Any, journal: Any) -> None:
    bench.stop()
    (bench.root / "hub-identity.next").write_bytes(cbor.encode(journal))
    assert [(fault.file, fault.code) for fault in bench.verify().faults] == [
        ("hub-identity.next", "IDENTITY")
    ]
    with pytest.raises(Malformed, match=r"hub-identity\.next: "):
        identity.load_or_create(bench.datadir, bytes, bench.now)
