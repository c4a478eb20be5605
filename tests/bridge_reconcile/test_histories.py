"""Random histories: the report is what looking at every single event gives."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from reconcile_brute_force import as_set, forked_at, last_words, ledgers, stream
from reconcile_histories import History, a_history

from bridge.reconcile import fact_file, portions
from bridge.reconcile.facts import Facts, Held
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.stream_report import Class


def test_reports_equal_brute_force(history_count: int) -> None:
    seen: set[str] = set()
    for seed in range(history_count):
        facts, history = a_history(seed)
        document = reconcile(facts).document()
        check(facts, history, document, seed)
        seen |= {name for name, count in document["events"].items() if count}
        seen |= {one["alarm"] for one in document["alarms"]}
        seen |= {"unknown"} if any(one["unknown"] for one in document["ledgers"]) else set()
        seen |= {"unplaced"} if document["unplaced"] else set()
    # What no history shows is tested by none of them.
    assert seen >= {one.value for one in Class} | {
        "equivocation", "ledger.repeated", "ledger.forked", "import.doubled",
        "import.unfulfilled", "unknown", "unplaced",
    }  # fmt: skip


def check(facts: Facts, history: History, document: dict[str, Any], seed: int) -> None:
    words = last_words(facts)
    told = [*facts.exports, *facts.imports, *facts.routes, *words.values()]
    keys = {(one.hub_id, one.stream) for one in told if one.stream}
    keys |= {fork[:2] for fork in forked_at(facts)}
    assert [(one["hub_id"], one["stream"]) for one in document["streams"]] == [
        (hub_id.hex(), name) for hub_id, name in sorted(keys)
    ], seed
    for (hub_id, name), found in zip(sorted(keys), document["streams"], strict=True):
        due = stream(facts, hub_id, name)
        check_time(facts, history, found, due["closed_to"], seed)
        check_bundles(facts, found, seed)
        assert due.pop("closed_to") == found["closed"]["to_seq"], seed
        assert due == {key: found[key] for key in due}, seed
    assert document["unplaced"] == sorted(
        one.bundle_id.hex() for one in words.values() if not one.first
    )
    check_ledgers(facts, document, seed)


def check_time(facts: Facts, history: History, found: Any, to_seq: int, seed: int) -> None:
    """No event before the time that is called closed is beyond the place that is."""
    source = next((one for one in facts.sources if one.hub_id == history.hub_id), None)
    times = history.times[found["stream"]]
    end = None
    if source is not None:
        end = next((one.last for one in source.ends if one.stream == found["stream"]), 0)
    before = found["closed"]["before"]
    if to_seq == end and source is not None:
        assert before == source.created_at, seed
    elif any(key[1] == found["stream"] and key[2] == to_seq + 1 for key in forked_at(facts)):
        assert before <= (times[to_seq - 1] if to_seq else 0), seed
    else:
        assert before == (times[to_seq - 1] if to_seq else 0), seed


def check_bundles(facts: Facts, found: Any, seed: int) -> None:
    """Exactly the bundles that events are missing of are named as missing."""
    words = last_words(facts)
    missing = {
        n for first, last in found["classes"]["missing"]["ranges"] for n in range(first, last + 1)
    }
    unseen = {one.bundle_id for one in facts.imports if one.held is Held.UNSEEN}
    due = set()
    for one in [*facts.exports, *(one for one in words.values() if one.first)]:
        other_state = one.bundle_id in words and words[one.bundle_id].state.value != "imported"
        mine = missing & set(range(one.first, one.last + 1))
        is_partial = one.bundle_id not in words and one.bundle_id in unseen
        if one.stream == found["stream"] and mine and not other_state and not is_partial:
            due.add((one.bundle_id.hex(), one.first, one.last, len(mine)))
    assert due == {
        (one["bundle_id"], one["from_seq"], one["to_seq"], one["events"])
        for one in found["bundles"]
        if one["state"] == "missing"
    }, seed


def check_ledgers(facts: Facts, document: dict[str, Any], seed: int) -> None:
    due = ledgers(facts)
    assert {one["bridge_id"]: one["unknown"] for one in document["ledgers"]} == due["unknown"], seed
    for alarm in ("repeated", "forked"):
        assert {
            (one["bridge_id"], one["n"])
            for one in document["alarms"]
            if one["alarm"] == f"ledger.{alarm}"
        } == due[alarm], seed
    assert {
        (one["hub_id"], one["stream"], one["seq"])
        for one in document["alarms"]
        if one["alarm"] == "equivocation"
    } == {(hub_id.hex(), name, seq) for hub_id, name, seq in forked_at(facts)}, seed


def test_order_and_repetition_of_facts_change_no_byte() -> None:
    for seed in range(100):
        facts, _ = a_history(seed)
        random = Random(seed)

        def mixed(found: Any, random: Random = random) -> list[Any]:
            listed = [*found, *random.sample(list(found), len(list(found)) // 2)]
            random.shuffle(listed)
            return listed

        other = replace(
            facts,
            exports=mixed(facts.exports),
            imports=mixed(facts.imports),
            standings=mixed(facts.standings),
            repeats=mixed(facts.repeats),
            entries=mixed(facts.entries),
            forks=mixed(facts.forks),
            routes=mixed(facts.routes),
        )
        assert reconcile(other).encode() == reconcile(facts).encode()


def test_facts_come_back_from_their_lines() -> None:
    for seed in range(100):
        facts, _ = a_history(seed)
        again = fact_file.read(fact_file.lines(facts))
        assert list(fact_file.lines(again)) == list(fact_file.lines(facts))
        assert as_set(set()) == {"events": 0, "ranges": []}
        assert reconcile(again).encode() == reconcile(facts).encode()


def test_portions_of_files_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "_LINES", 5)
    for seed in range(60):
        facts, _ = a_history(seed)
        lines = list(fact_file.lines(facts))
        Random(seed).shuffle(lines)
        half = len(lines) // 2
        for number, part in enumerate((lines[:half], lines[half:])):
            (tmp_path / f"{number}.jsonl").write_bytes(b"".join(one + b"\n" for one in part))
        found = portions.reconcile_files([tmp_path / "0.jsonl", tmp_path / "1.jsonl"])
        assert found.encode() == reconcile(facts).encode()
