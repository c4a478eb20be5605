"""Random histories: the report is what looking at every single event gives."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from bridge.reconcile import reconcile as batches
from bridge.reconcile.facts import (
    BundleFact,
    Export,
    Import,
    ImportedFact,
    ReconcileFacts,
    RouteFact,
    fact_lines,
    read_facts,
)
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.report import Class
from support.bridge.reconcile_brute_force import as_set, forked_at, last_words, ledgers, stream
from support.bridge.reconcile_histories import History, a_history
from support.long_form import LONG

HISTORIES = 10_000 if LONG else 1_000


def test_reports_equal_brute_force() -> None:
    seen: set[str] = set()
    for seed in range(HISTORIES):
        facts, history = a_history(seed)
        document = reconcile(facts).document()
        check(facts, history, document, seed)
        seen |= {name for name, count in document["events"].items() if count}
        seen |= {item["alarm"] for item in document["alarms"]}
        seen |= {"unknown"} if any(item["unknown"] for item in document["ledgers"]) else set()
        seen |= {"unplaced"} if document["unplaced"] else set()
    # What no history shows is tested by none of them.
    assert seen >= {item.value for item in Class} | {
        "equivocation", "ledger.repeated", "ledger.forked", "import.doubled",
        "import.unfulfilled", "unknown", "unplaced",
    }  # fmt: skip


def check(facts: ReconcileFacts, history: History, document: dict[str, Any], seed: int) -> None:
    words = last_words(facts)
    placed: list[Export | Import | RouteFact | BundleFact] = [*facts.exports, *facts.imports]
    placed += [*facts.routes, *words.values()]
    keys = {(item.hub_id, item.stream) for item in placed if item.stream}
    keys |= {fork[:2] for fork in forked_at(facts)}
    assert [(item["hub_id"], item["stream"]) for item in document["streams"]] == [
        (hub_id.hex(), name) for hub_id, name in sorted(keys)
    ], seed
    for (hub_id, name), result in zip(sorted(keys), document["streams"], strict=True):
        due = stream(facts, hub_id, name)
        check_time(facts, history, result, due["closed_to"], seed)
        check_bundles(facts, result, seed)
        assert due.pop("closed_to") == result["closed"]["to_seq"], seed
        assert due == {key: result[key] for key in due}, seed
    assert document["unplaced"] == sorted(
        word.bundle_id.hex() for word in words.values() if not word.first
    )
    check_ledgers(facts, document, seed)


def check_time(
    facts: ReconcileFacts, history: History, report: Any, to_seq: int, seed: int
) -> None:
    """No event before the time that is called closed is beyond the place that is."""
    source = next((source for source in facts.sources if source.hub_id == history.hub_id), None)
    times = history.times[report["stream"]]
    end = None
    if source is not None:
        end = next((end.last for end in source.ends if end.stream == report["stream"]), 0)
    before = report["closed"]["before"]
    if to_seq == end and source is not None:
        assert before == source.created_at, seed
    elif any(key[1] == report["stream"] and key[2] == to_seq + 1 for key in forked_at(facts)):
        assert before <= (times[to_seq - 1] if to_seq else 0), seed
    else:
        assert before == (times[to_seq - 1] if to_seq else 0), seed


def check_bundles(facts: ReconcileFacts, report: Any, seed: int) -> None:
    """Exactly the bundles that events are missing of are named as missing."""
    words = last_words(facts)
    missing = {
        n for first, last in report["classes"]["missing"]["ranges"] for n in range(first, last + 1)
    }
    unseen = {import_.bundle_id for import_ in facts.imports if import_.held is ImportedFact.UNSEEN}
    due = set()
    exports: list[Export | BundleFact] = [*facts.exports]
    exports += [word for word in words.values() if word.first]
    for export in exports:
        other_state = (
            export.bundle_id in words and words[export.bundle_id].state.value != "imported"
        )
        mine = missing & set(range(export.first, export.last + 1))
        is_partial = export.bundle_id not in words and export.bundle_id in unseen
        if export.stream == report["stream"] and mine and not other_state and not is_partial:
            due.add((export.bundle_id.hex(), export.first, export.last, len(mine)))
    assert due == {
        (item["bundle_id"], item["from_seq"], item["to_seq"], item["events"])
        for item in report["bundles"]
        if item["state"] == "missing"
    }, seed


def check_ledgers(facts: ReconcileFacts, document: dict[str, Any], seed: int) -> None:
    due = ledgers(facts)
    assert {item["bridge_id"]: item["unknown"] for item in document["ledgers"]} == due["unknown"], (
        seed
    )
    for alarm in ("repeated", "forked"):
        assert {
            (item["bridge_id"], item["n"])
            for item in document["alarms"]
            if item["alarm"] == f"ledger.{alarm}"
        } == due[alarm], seed
    assert {
        (item["hub_id"], item["stream"], item["seq"])
        for item in document["alarms"]
        if item["alarm"] == "equivocation"
    } == {(hub_id.hex(), name, seq) for hub_id, name, seq in forked_at(facts)}, seed


def test_order_and_repetition_of_facts_change_no_byte() -> None:
    for seed in range(100):
        facts, _ = a_history(seed)
        random = Random(seed)

        def mixed(facts: Any, random: Random = random) -> list[Any]:
            listed = [*facts, *random.sample(list(facts), len(list(facts)) // 2)]
            random.shuffle(listed)
            return listed

        other = replace(
            facts,
            exports=mixed(facts.exports),
            imports=mixed(facts.imports),
            bundle_facts=mixed(facts.bundle_facts),
            repeats=mixed(facts.repeats),
            entries=mixed(facts.entries),
            forks=mixed(facts.forks),
            routes=mixed(facts.routes),
        )
        assert reconcile(other).encode() == reconcile(facts).encode()


def test_facts_come_back_from_their_lines() -> None:
    for seed in range(100):
        facts, _ = a_history(seed)
        again = read_facts(fact_lines(facts))
        assert list(fact_lines(again)) == list(fact_lines(facts))
        assert as_set(set()) == {"events": 0, "ranges": []}
        assert reconcile(again).encode() == reconcile(facts).encode()


def test_portions_of_files_change_no_byte(tmp_path: Path) -> None:
    for seed in range(60):
        facts, _ = a_history(seed)
        lines = list(fact_lines(facts))
        Random(seed).shuffle(lines)
        half = len(lines) // 2
        for number, part in enumerate((lines[:half], lines[half:])):
            (tmp_path / f"{number}.jsonl").write_bytes(b"".join(item + b"\n" for item in part))
        reconcile_files = batches.reconcile_files(
            [tmp_path / "0.jsonl", tmp_path / "1.jsonl"], batch_lines=5
        )
        assert reconcile_files.encode() == reconcile(facts).encode()
