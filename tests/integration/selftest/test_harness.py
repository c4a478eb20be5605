"""How steps are run and told, without a hub."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from cli.selftest.samples import (
    TYPES,
    SelftestStep,
    Unexpected,
    carries_raw_items,
    expect,
    expect_raises,
    heads,
    naive_peaks,
    naive_root,
    naive_subtree,
    run,
    sample,
    variants,
)
from cli.selftest.world import a_world
from support.selftest import selftest_run
from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.api import StreamResponse, SubmitRequest


def failing(_: str) -> None:
    expect("the answer", 41, 42)


def crashing(_: str) -> None:
    raise KeyError("nobody's fault")


def passing(_: str) -> None:
    expect("the answer", 42, 42)


STEPS = [
    SelftestStep("fails", failing),
    SelftestStep("crashes", crashing),
    SelftestStep("passes", passing),
]


def test_a_step_that_fails_is_named_and_the_others_still_run() -> None:
    ticks = count()
    result = list(run("suite", STEPS, str.upper, lambda: float(next(ticks))))
    assert [(item.name, item.ok, item.detail, item.seconds) for item in result] == [
        ("fails", False, "the answer: expected 42, got 41", 1.0),
        ("crashes", False, 'KeyError: "nobody\'s fault"', 1.0),
        ("passes", True, None, 1.0),
    ]


def test_a_step_that_cannot_begin_has_failed() -> None:
    def begin(name: str) -> str:
        raise Unexpected(f"nothing there for {name}")

    (result,) = run("suite", STEPS[2:], begin, lambda: 0.0)
    assert (result.ok, result.detail) == (False, "nothing there for passes")


def test_an_interrupt_is_no_failure_of_a_step() -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run("suite", [SelftestStep("long", interrupted)], str.upper, lambda: 0.0))


def test_an_error_of_another_kind_is_not_the_expected_one() -> None:
    with pytest.raises(Unexpected, match="expected KeyError, got ValueError: no"):
        expect_raises("it", KeyError, _raise, ValueError("no"))
    with pytest.raises(Unexpected, match="but it was taken: 3"):
        expect_raises("it", KeyError, int, "3")


def _raise(error: Exception) -> None:
    raise error


def test_the_same_seed_gives_the_same_chance_for_a_step() -> None:
    def bytes_of(seed: int, step: str) -> bytes:
        with a_world(seed, None, 1, {}) as world:
            return world.begin(step).random.randbytes(8)

    assert bytes_of(1, "a") == bytes_of(1, "a")
    assert len({bytes_of(1, "a"), bytes_of(2, "a"), bytes_of(1, "b")}) == 3


def test_a_world_is_gone_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(Unexpected, match="it was"), a_world(1, None, 1, {}) as world:
        expect("it was", list(world.root.parent.iterdir()), [])
    assert list(tmp_path.iterdir()) == []


def test_the_naive_tree_is_that_of_the_specification() -> None:
    leaves = [bytes([n]) * 32 for n in range(3)]
    pair = naive_subtree(leaves[:2])
    assert naive_peaks(leaves) == [leaves[2], pair]
    assert naive_root(leaves[:1]) == leaves[0]
    assert naive_root(leaves[:2]) == pair
    assert len({naive_root(leaves[:size]) for size in (1, 2, 3)}) == 3


def test_every_head_of_an_item_is_found() -> None:
    raw = cbor.encode({1: [2, b"xyz"], 3: "é" * 12})
    assert [(head.major, head.argument) for head in heads(raw)] == [
        (5, 2), (0, 1), (4, 2), (0, 2), (2, 3), (0, 3), (3, 24),
    ]  # fmt: skip
    assert all(variant[1] != raw for variant in variants(raw, only_outermost=False))


def test_samples_are_made_of_every_type_on_the_wire() -> None:
    assert len(TYPES) > 45
    assert {"Msg", "Receipt", "Checkpoint", "MmrProof", "CapToken"} <= {
        item.__name__ for item in TYPES
    }
    assert carries_raw_items(SubmitRequest)
    assert carries_raw_items(StreamResponse)
    assert not carries_raw_items(Receipt)
    with a_world(1, None, 1, {}) as world:
        assert sample(world.begin("a").random, Receipt) == sample(world.begin("a").random, Receipt)


def test_an_unknown_step_is_misuse(tmp_path: Path) -> None:
    done = selftest_run.run(tmp_path, "core", "--only", "nothing-like-it")
    assert done.code == 1
    assert "unknown step 'nothing-like-it'; the steps are attachments, " in done.err


def test_what_failed_is_printed_even_to_who_wants_errors_only(tmp_path: Path) -> None:
    only = ("--only", "mmr-associativity", "--only", "inclusion-proofs")
    done = selftest_run.run(tmp_path, "props", "--quiet", *only, mutant="inclusion unchecked")
    assert (done.code, done.out) == (5, "")
    first, last = done.err.splitlines()
    assert first.startswith("FAIL props/inclusion-proofs: another leaf: expected Untrusted")
    assert last == "veen: 1 of 2 steps failed: props/inclusion-proofs"


def test_the_same_run_says_the_same(tmp_path: Path) -> None:
    outputs = [
        selftest_run.run(tmp_path, "props", "--json", "--count", 3, "--only", "range-proofs")
    ]
    outputs.append(
        selftest_run.run(tmp_path, "props", "--json", "--count", 3, "--only", "range-proofs")
    )
    first, second = (item.document for item in outputs)
    for item in (*first["steps"], *second["steps"]):
        item.pop("seconds")
    assert first == second
