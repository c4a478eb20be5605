"""Every way in which an entry can be wrong is found where it lies, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.hub import driven_hub
from veen import captoken
from veen.captoken import Rate
from veen.crypto import SigningKey

CHUNK = "log/chunk-*-00000000000000000009-00000000000000000016.log"


@pytest.fixture
def forged(hub_copy: Path, forge: Any) -> Callable[..., list[tuple[int, int | None, str]]]:
    """Edit the entries of a chunk in the middle of a label; what is found in that file."""

    def run(edit: Callable[[list[Any]], None]) -> list[tuple[int, int | None, str]]:
        path = driven_hub.the(hub_copy, CHUNK)
        forge(path, edit)
        report = driven_hub.check(hub_copy)
        assert {fault.file for fault in report.faults} == {f"log/{path.name}"}
        return [(fault.offset, fault.stream_seq, fault.code) for fault in report.faults]

    return run


@pytest.fixture
def size(hub_copy: Path) -> int:
    """The size of one entry: all of the chunk have the same."""
    return int(driven_hub.the(hub_copy, CHUNK).stat().st_size) // 8


def test_an_entry_dropped(forged: Any, size: int) -> None:
    assert forged(lambda entries: entries.pop(3)) == [(3 * size, 13, "MISSING")]


def test_the_last_entry_dropped(forged: Any, size: int) -> None:
    assert forged(lambda entries: entries.pop()) == [(7 * size, 15, "NAME")]


def test_an_entry_twice(forged: Any, size: int) -> None:
    result = forged(lambda entries: entries.insert(3, entries[3]))
    assert result == [(4 * size, 12, "ORDER")]


def test_two_entries_swapped(forged: Any, size: int) -> None:
    def swap(entries: list[Any]) -> None:
        entries[2], entries[3] = entries[3], entries[2]

    assert forged(swap) == [(2 * size, 12, "MISSING"), (3 * size, 11, "ORDER")]


def test_a_wrong_root_that_the_hub_signed(
    forged: Any, forged_hub_key: SigningKey, size: int
) -> None:
    def edit(entries: list[Any]) -> None:
        entries[5].receipt = replace(entries[5].receipt, mmr_root=bytes(32)).signed(forged_hub_key)

    assert forged(edit) == [(5 * size, 14, "I3")]


def test_a_wrong_root_at_the_end_of_a_chunk(
    forged: Any, forged_hub_key: SigningKey, size: int
) -> None:
    def edit(entries: list[Any]) -> None:
        entries[7].receipt = replace(entries[7].receipt, mmr_root=bytes(32)).signed(forged_hub_key)

    assert forged(edit) == [(7 * size, 16, "I3")]


def test_a_receipt_signed_by_another(forged: Any, size: int) -> None:
    def edit(entries: list[Any]) -> None:
        entries[0].receipt = entries[0].receipt.signed(SigningKey(bytes(32)))

    assert forged(edit) == [(0, 9, "SIG")]


def test_a_message_signed_by_another(forged: Any, size: int) -> None:
    def edit(entries: list[Any]) -> None:
        entries[1].msg = entries[1].msg.signed(SigningKey(bytes(32)))

    assert forged(edit) == [(size, 10, "SIG")]


def test_another_ciphertext_under_the_same_receipt(forged: Any, size: int) -> None:
    def edit(entries: list[Any]) -> None:
        whole = entries[4].msg.ciphertext
        changed = whole[:-1] + bytes([whole[-1] ^ 1])
        entries[4].msg = replace(entries[4].msg, ciphertext=changed)

    ((at, seq, code),) = forged(edit)
    assert (at, seq) == (4 * size, 13)
    assert code in ("I1", "I11")


def test_a_header_of_another_entry(forged: Any, size: int) -> None:
    def edit(entries: list[Any]) -> None:
        entries[6].seq = 99

    assert forged(edit) == [(6 * size, 15, "FRAME")]


def test_time_that_goes_back(forged: Any, forged_hub_key: SigningKey, size: int) -> None:
    def edit(entries: list[Any]) -> None:
        earlier = entries[2].receipt.hub_ts - 1
        entries[3].receipt = replace(entries[3].receipt, hub_ts=earlier).signed(forged_hub_key)

    assert forged(edit) == [(3 * size, 12, "TIME")]


def test_several_faults_are_all_reported(
    forged: Any, forged_hub_key: SigningKey, size: int
) -> None:
    def edit(entries: list[Any]) -> None:
        entries[1].msg = entries[1].msg.signed(SigningKey(bytes(32)))
        entries[4].receipt = replace(entries[4].receipt, mmr_root=bytes(32)).signed(forged_hub_key)
        entries[6].seq = 99

    assert forged(edit) == [(size, 10, "SIG"), (4 * size, 13, "I3"), (6 * size, 15, "FRAME")]


@pytest.mark.parametrize("field", [0, 1, 2, 34, 42, 46, 50, 82, 300, 539], ids=str)
def test_a_flipped_byte_is_found_at_its_entry(hub_copy: Path, size: int, field: int) -> None:
    path = driven_hub.the(hub_copy, CHUNK)
    raw = bytearray(path.read_bytes())
    raw[2 * size + field] ^= 0x10
    path.write_bytes(raw)
    report = driven_hub.check(hub_copy)
    assert [(fault.file, fault.offset, fault.code) for fault in report.faults] == [
        (f"log/{path.name}", 2 * size, "FRAME")
    ]


def test_faster_than_the_rate_over_two_labels(hub_bench: Any) -> None:
    """The committer is told that the bucket is full again, as a hub that cheats would be."""
    client = driven_hub.a_key("client")
    token = hub_bench.authorize(client, Rate(per_sec=0, burst=5))
    hub_bench.send(client, driven_hub.STREAMS[0], token, 3)
    hub_bench.send(client, driven_hub.STREAMS[1], token, 2)
    hub_bench.committer.log.index.put_buckets([(token.auth_ref(), 9, hub_bench.now)])
    hub_bench.restart()
    hub_bench.now += 1
    assert isinstance(hub_bench.send(client, driven_hub.STREAMS[0], token)[0], bytes)
    hub_bench.stop()
    (fault,) = hub_bench.verify().faults
    assert (fault.stream_seq, fault.code) == (4, "I7")


def test_a_capability_that_was_never_made_known(hub_bench: Any, forge: Any) -> None:
    client = driven_hub.a_key("client")
    token = hub_bench.authorize(client)
    hub_bench.send(client, driven_hub.STREAMS[0], token, 2)
    hub_bench.stop()
    unknown = captoken.issue(client, subject_pk=client.public, stream_ids=[bytes(32)], ttl=1)

    def edit(entries: list[Any]) -> None:
        entries[1].msg = replace(entries[1].msg, auth_ref=unknown.auth_ref()).signed(client)

    label = hub_bench.label(driven_hub.STREAMS[0])
    forge(driven_hub.the(hub_bench.root, f"log/chunk-{label.hex()}-*"), edit)
    assert [(fault.stream_seq, fault.code) for fault in hub_bench.verify().faults] == [(2, "I7")]
