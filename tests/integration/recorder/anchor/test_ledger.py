"""The ledger: what it refuses, what it survives, and that it remembers what an oracle does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recorder.anchor.anchors import AnchorUnavailable, kind_of
from recorder.anchor.ledger import AnchorLedger, LedgerRef, check, mark_of, read_line
from support.long_form import LONG
from veen.digest import ht, u64be
from veen.errors import Malformed, Untrusted

Noise = Callable[[int], bytes]
ROOTS = [bytes([n]) * 32 for n in range(1, 9)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "anchors.ledger"


@pytest.fixture
def ledger(path: Path, noise: Noise) -> AnchorLedger:
    return AnchorLedger(path, noise)


def fill(ledger: AnchorLedger, count: int = 5) -> list[bytes]:
    return [ledger.publish(ROOTS[n], 0, 1_000 + n, b"nonce%d" % n) for n in range(count)]


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def copy(path: Path, content: bytes) -> AnchorLedger:
    """The ledger as someone else holds it: the file alone."""
    other = path.with_name("copy.ledger")
    other.write_bytes(content)
    return AnchorLedger(other, os.urandom)


def test_refuses_another_root(ledger: AnchorLedger) -> None:
    refs = fill(ledger)
    with pytest.raises(Untrusted, match="entry 3 holds another root"):
        ledger.verify(ROOTS[3], refs[2])


def test_refuses_a_ref_of_another_ledger(ledger: AnchorLedger, tmp_path: Path) -> None:
    other = AnchorLedger(tmp_path / "other", os.urandom)
    ref = fill(other)[0]
    fill(ledger)
    with pytest.raises(Untrusted, match="give that file"):
        ledger.verify(ROOTS[0], ref)


@pytest.mark.parametrize("junk", [b"", b"\xa0", b"\x01", b"\xa1\x02\x01"])
def test_refuses_what_is_no_anchor_ref(ledger: AnchorLedger, junk: bytes) -> None:
    fill(ledger)
    with pytest.raises(Malformed):
        kind_of(junk)
    with pytest.raises(Malformed):
        ledger.verify(ROOTS[0], junk)


def test_every_changed_bit_breaks_it_where_it_stands(ledger: AnchorLedger, path: Path) -> None:
    refs = fill(ledger, 3)
    raw = path.read_bytes()
    for at in range(0, len(raw), 1 if LONG else 7):
        changed = bytearray(raw)
        changed[at] ^= 1 << at % 7
        entry = raw[:at].count(b"\n")
        with pytest.raises(Untrusted, match=rf"broken at entry {entry}:"):
            copy(path, bytes(changed)).verify(ROOTS[0], refs[0])


def test_refuses_removed_lines(ledger: AnchorLedger, path: Path) -> None:
    refs, all_lines = fill(ledger), lines(path)
    for gone in range(5):
        shorter = b"".join(all_lines[:gone] + all_lines[gone + 1 :])
        with pytest.raises(Untrusted, match=f"broken at entry {gone}:"):
            copy(path, shorter).verify(ROOTS[4], refs[4])
    with pytest.raises(Untrusted, match="expected entry 5, the anchor; the last is 4"):
        copy(path, b"".join(all_lines[:-1])).verify(ROOTS[4], refs[4])


def test_refuses_moved_and_doubled_lines(ledger: AnchorLedger, path: Path) -> None:
    refs, (zero, item, two, *rest) = fill(ledger), lines(path)
    for order in ([zero, two, item, *rest], [zero, item, item, two, *rest]):
        with pytest.raises(Untrusted, match=r"broken at entry [12]:.*removed or moved"):
            copy(path, b"".join(order)).verify(ROOTS[4], refs[4])


def test_refuses_a_fork_that_is_whole_in_itself(ledger: AnchorLedger, path: Path) -> None:
    refs = fill(ledger)
    forked = copy(path, b"".join(lines(path)[:3]))
    for n in range(2, 5):
        forked.publish(ROOTS[7], 0, 2_000 + n, b"")
    assert check(path.with_name("copy.ledger")).last.index == 5
    with pytest.raises(Untrusted, match="entry 4 has another hash: the ledger forked"):
        forked.verify(ROOTS[3], refs[3])
    assert forked.verify(ROOTS[1], refs[1]).ts == 1_001


def test_refuses_half_a_last_line_in_a_copy(ledger: AnchorLedger, path: Path) -> None:
    refs = fill(ledger)
    with pytest.raises(Untrusted, match="broken at entry 5"):
        copy(path, path.read_bytes()[:-10]).verify(ROOTS[0], refs[0])


def test_refuses_to_go_on_when_what_was_acknowledged_is_gone(
    ledger: AnchorLedger, path: Path
) -> None:
    refs, raw = fill(ledger), path.read_bytes()
    for size in (0, 10, len(raw) - 1, len(raw) - 200):
        path.write_bytes(raw[:size])
        with pytest.raises(Untrusted, match="entry 5 was acknowledged"):
            ledger.publish(ROOTS[5], 0, 2_000, b"")
        assert path.read_bytes() == raw[:size]
    path.write_bytes(b"".join(lines(path))[: len(raw)] or raw)
    path.write_bytes(b"".join(raw.splitlines(keepends=True)[:-1]))
    with pytest.raises(Untrusted, match="got 4 of "):
        ledger.verify(ROOTS[0], refs[0])


@pytest.mark.parametrize("torn", [b"{", b"\0" * 40, b'{"epoch":0,"hash"', b"junk\nmore\n"])
def test_cuts_a_tail_that_was_never_acknowledged(
    ledger: AnchorLedger, path: Path, torn: bytes
) -> None:
    refs, raw = fill(ledger), path.read_bytes()
    path.write_bytes(raw + torn)
    sixth = ledger.publish(ROOTS[5], 0, 2_000, b"")
    assert path.read_bytes().startswith(raw)
    assert LedgerRef.decode(sixth).index == 6
    for root, ref in zip(ROOTS, [*refs, sixth], strict=False):
        ledger.verify(root, ref)


def test_keeps_a_whole_line_that_was_not_acknowledged(ledger: AnchorLedger, path: Path) -> None:
    mark = b""
    for n in range(2):
        mark = mark_of(path).read_bytes() if n else b""
        ledger.publish(ROOTS[n], 0, n, b"")
    mark_of(path).write_bytes(mark)  # as if the process had ended before it moved the mark
    ref = LedgerRef.decode(ledger.publish(ROOTS[2], 0, 2, b""))
    assert (ref.index, check(path).last.index) == (3, 3)


def test_refuses_a_file_that_is_no_ledger(ledger: AnchorLedger, path: Path) -> None:
    for content in (b"letters to a friend", b"letters\n", b"x" * 5_000):
        path.write_bytes(content)
        with pytest.raises(Untrusted):
            ledger.publish(ROOTS[0], 0, 0, b"")
        assert path.read_bytes() == content


def test_goes_on_without_its_mark_if_every_byte_is_right(ledger: AnchorLedger, path: Path) -> None:
    fill(ledger)
    mark_of(path).unlink()
    assert LedgerRef.decode(ledger.publish(ROOTS[5], 0, 0, b"")).index == 6
    mark_of(path).unlink()
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(Untrusted, match="broken at entry 6"):
        ledger.publish(ROOTS[5], 0, 0, b"")


def test_refuses_a_damaged_mark(ledger: AnchorLedger, path: Path) -> None:
    fill(ledger)
    mark_of(path).write_bytes(b"\xa1")
    with pytest.raises(Untrusted, match="the acknowledged length of the ledger"):
        ledger.publish(ROOTS[5], 0, 0, b"")


def test_a_missing_ledger_proves_nothing(ledger: AnchorLedger, path: Path) -> None:
    ref = fill(ledger, 1)[0]
    path.unlink()
    with pytest.raises(Untrusted, match="is missing"):
        ledger.verify(ROOTS[0], ref)


def test_says_that_a_ledger_cannot_be_written(path: Path) -> None:
    path.parent.joinpath("file").write_bytes(b"")
    with pytest.raises(AnchorUnavailable):
        AnchorLedger(path.parent / "file" / "ledger", os.urandom).publish(ROOTS[0], 0, 0, b"")


def test_refuses_fields_that_no_entry_has(ledger: AnchorLedger) -> None:
    for root, nonce in ((b"short", b""), (ROOTS[0], b"n" * 65)):
        with pytest.raises(Malformed):
            ledger.publish(root, 0, 0, nonce)
    with pytest.raises(Malformed):
        ledger.publish(ROOTS[0], 1 << 64, 0, b"")


def test_threads_append_one_after_another(path: Path) -> None:
    refs: list[bytes] = []
    threads = [
        Thread(target=lambda: refs.extend(fill(AnchorLedger(path, os.urandom)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(LedgerRef.decode(ref).index for ref in refs) == list(range(1, 21))
    assert check(path).last.index == 20


def test_appending_reads_no_more_of_a_long_ledger(ledger: AnchorLedger, path: Path) -> None:
    """What lies before the last entry is not looked at, so it may even be damaged."""
    refs = fill(ledger)
    raw = bytearray(path.read_bytes())
    raw[30] ^= 1
    path.write_bytes(raw)
    ledger.publish(ROOTS[5], 0, 0, b"")
    with pytest.raises(Untrusted, match="broken at entry 0"):
        ledger.verify(ROOTS[0], refs[0])


def test_its_lines_can_be_checked_by_hand(ledger: AnchorLedger, path: Path) -> None:
    fill(ledger, 2)
    before = bytes(32)
    for line in lines(path):
        document = json.loads(line)
        parts = [document["previous"], u64be(document["index"]).hex(), document["root"]]
        parts += [u64be(document["epoch"]).hex(), u64be(document["ts"]).hex(), document["nonce"]]
        digest = ht("veen/anchor-ledger", bytes.fromhex("".join(parts)))
        assert (document["hash"], document["previous"]) == (digest.hex(), before.hex())
        before = digest
    with pytest.raises(Malformed):
        read_line(b"[" * 5_000)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 7)),
        st.tuples(st.just("torn"), st.integers(1, 300)),
        st.tuples(st.just("unmarked"), st.just(0)),
        st.tuples(st.just("stale mark"), st.just(0)),
    ),
    max_size=12,
)


@settings(
    max_examples=400 if LONG else 25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_remembers_what_a_list_remembers(steps: list[tuple[str, int]], tmp_path: Path) -> None:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.ledger"
    ledger = AnchorLedger(path, os.urandom)
    oracle: list[tuple[bytes | None, int, bytes]] = []
    marks = [b""]
    for what, n in steps:
        if what == "publish":
            oracle.append((ROOTS[n], n, ledger.publish(ROOTS[n], n, n, b"%d" % n)))
            marks.append(mark_of(path).read_bytes())
        elif what == "torn" and oracle and mark_of(path).exists():
            with path.open("ab") as file:
                file.write(lines(path)[-1][:n].rstrip(b"\n"))
            ledger.publish(ROOTS[0], 0, 0, b"")
            oracle.append((None, 0, b""))
        elif what == "unmarked" and oracle:
            mark_of(path).unlink(missing_ok=True)
        elif what == "stale mark" and len(marks) > 2:
            mark_of(path).write_bytes(marks[-2])
    for place, (root, n, ref) in enumerate(oracle, 1):
        if root is not None:
            result = ledger.verify(root, ref)
            assert (result.epoch, result.ts, result.nonce) == (n, n, b"%d" % n)
            assert LedgerRef.decode(ref).index == place
    if oracle:
        assert check(path).last.index == len(oracle)
