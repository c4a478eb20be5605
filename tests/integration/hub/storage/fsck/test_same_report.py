"""The report is the same from several processes, and from whoever has only the files of the log."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.fsck.fsck import verify
from hub.storage.datadir import DataDir
from hub.storage.log_scan import Logged, pack_pruned
from hub.storage.retention import Rule, plan_retention, prune
from support.hub import driven_hub
from veen.audit.context import ChunkFindings, Context, Depth, Task, begin, take_inventory
from veen.audit.engine import AuditedLog, AuditPool, audit_log, audit_task, in_order
from veen.audit.report import AuditReport
from veen.audit.trust import TrustCheck
from veen.crypto import SigningKey
from veen.label import DEFAULT_PROFILE
from veen.log.layout import ChunkName, unpack_leaves

CHUNK = "log/chunk-*-00000000000000000009-00000000000000000016.log"
Damage = Callable[[Path, Any], None]


def from_files(root: Path) -> AuditReport:
    """An audit by someone who has the log and not the hub: chunks in any order, no node files."""
    result = [*root.glob("*.*"), *(root / "log").iterdir()]
    files = {str(path.relative_to(root)): path.read_bytes() for path in result}
    trust, chance = TrustCheck(), random.Random(5)
    hub = trust.read_hub(files.get)
    context = begin(
        hub=hub, limits=driven_hub.LIMITS, profiles=(driven_hub.HOURLY,),
        streams=driven_hub.STREAMS, depth=Depth.FULL,
    )  # fmt: skip

    def run(tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        expected = list(enumerate(tasks))
        chance.shuffle(expected)
        audited = {place: audit_task(task, files.get, context) for place, task in expected}
        return (audited[place] for place in sorted(audited))

    inventory = take_inventory(name for name in files if name.startswith("log/"))
    pool = AuditPool(run, in_order(files.get).again)
    log = audit_log(AuditedLog(inventory=inventory, read=files.get), context, pool)
    return log.report(trust.faults, trust.notes, ())


def checked(root: Path, workers: int) -> AuditReport:
    return verify(
        DataDir(root), limits=driven_hub.LIMITS, profiles=(DEFAULT_PROFILE, driven_hub.HOURLY),
        streams=driven_hub.STREAMS, progress=lambda *_: None, workers=workers,
    )  # fmt: skip


def nothing(_root: Path, _forge: Any) -> None:
    """The log as the hub left it."""


def flip(root: Path, _forge: Any) -> None:
    path = driven_hub.the(root, CHUNK)
    raw = bytearray(path.read_bytes())
    raw[700] ^= 1
    path.write_bytes(raw)


def drop(root: Path, forge: Any) -> None:
    forge(driven_hub.the(root, CHUNK), lambda entries: entries.pop(4))


def swap(root: Path, forge: Any) -> None:
    forge(driven_hub.the(root, CHUNK), lambda entries: entries.insert(2, entries.pop(5)))


def duplicate(root: Path, forge: Any) -> None:
    forge(driven_hub.the(root, CHUNK), lambda entries: entries.append(entries[1]))


def stranger(root: Path, forge: Any) -> None:
    def edit(entries: list[Any]) -> None:
        entries[1].msg = entries[1].msg.signed(SigningKey(bytes(32)))

    forge(driven_hub.the(root, CHUNK), edit)


def missing_chunk(root: Path, _forge: Any) -> None:
    driven_hub.the(root, CHUNK).unlink()


def missing_snapshot(root: Path, _forge: Any) -> None:
    driven_hub.the(root, "log/peaks-*").unlink()


def pruned_chunks(root: Path, _forge: Any) -> None:
    later = driven_hub.START + 40 * 86_400
    due = plan_retention(DataDir(root), [Rule("record/*", 30)], driven_hub.STREAMS, later)
    prune(DataDir(root), due, limits=driven_hub.LIMITS, move_to=None, now=later)


@pytest.mark.parametrize(
    "damage",
    [
        nothing, flip, drop, swap, duplicate, stranger, missing_chunk, missing_snapshot,
        pruned_chunks,
    ],
)  # fmt: skip
def test_the_files_alone_give_the_same_report(hub_copy: Path, forge: Any, damage: Damage) -> None:
    damage(hub_copy, forge)
    report = driven_hub.check(hub_copy)
    assert report.ok is (damage in (nothing, pruned_chunks))
    assert from_files(hub_copy).to_json() == report.to_json()


def test_several_processes_give_the_same_report(hub_copy: Path, forge: Any) -> None:
    drop(hub_copy, forge)
    missing_snapshot(hub_copy, forge)
    item, two = checked(hub_copy, 1), checked(hub_copy, 2)
    assert len(item.faults) >= 2
    assert item.to_json() == two.to_json()


def test_without_signatures_only_hashes_tell(hub_copy: Path, forge: Any) -> None:
    stranger(hub_copy, forge)
    options: dict[str, Any] = {
        "limits": driven_hub.LIMITS, "profiles": (driven_hub.HOURLY,),
        "streams": driven_hub.STREAMS, "progress": lambda *_: None,
    }  # fmt: skip
    assert [fault.code for fault in verify(DataDir(hub_copy), **options).faults] == ["SIG"]
    assert [
        fault.code for fault in verify(DataDir(hub_copy), **options, depth=Depth.HASHES).faults
    ] == ["SUMMARY"]


def test_the_node_file_helps_to_check_a_root_behind_a_gap(
    hub_copy: Path, forge: Any, forged_hub_key: SigningKey
) -> None:
    def edit(entries: list[Any]) -> None:
        forged = replace(entries[6].receipt, mmr_root=bytes(32))
        entries[6].receipt = forged.signed(forged_hub_key)
        entries.pop(3)

    forge(driven_hub.the(hub_copy, CHUNK), edit)
    assert [fault.code for fault in driven_hub.check(hub_copy).faults] == ["MISSING", "I3"]
    assert [fault.code for fault in from_files(hub_copy).faults] == ["MISSING"]
    assert any("rest on entries" in note for note in from_files(hub_copy).notes)


def test_records_of_pruned_chunks_are_read_as_the_hub_packs_them() -> None:
    name = ChunkName(bytes(32), 5, 6)
    entries = [
        Logged(5, 0, 7, b"c" * 32, 1, 0, None, b"l" * 32),
        Logged(6, 90, 8, b"d" * 32, 2, 3, b"a" * 32, b"m" * 32),
    ]
    read = unpack_leaves(pack_pruned(entries), name)
    assert [(record.at, record.hub_ts, record.auth_ref, record.leaf_hash) for record in read] == [
        (entry.at, entry.hub_ts, entry.auth_ref, entry.leaf_hash) for entry in entries
    ]
