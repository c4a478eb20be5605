"""Evidence: a witness holds for one event in one place, and the summary is what the text says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from recorder.query.descriptor import EvidencePolicy
from recorder.query.evidence import (
    EvidenceSummary,
    Witness,
    WitnessCheck,
    evidence_hash,
    evidence_summary,
    is_sampled,
    verified,
)
from recorder.query.select import QueryEntry
from support.broken import changed
from support.recorder import query_histories, query_oracle
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted, VeenError
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire import canonical_json
from veen.wire.body import AnyItem

ROOT = bytes(range(32))
LINES = [EvidenceSummary("rcpt-1", "aa", "bb"), EvidenceSummary("rcpt-2", "cc", "dd")]


@pytest.fixture(scope="module")
def entry(small_log: Any) -> QueryEntry:
    result: QueryEntry = next(e for e in small_log.entries if e.event is not None and e.seq > 3)
    return result


@pytest.fixture(scope="module")
def witness(small_log: Any, entry: QueryEntry) -> Witness:
    result: Witness = small_log.witness(entry)
    return result


def test_every_event_can_be_witnessed(small_log: Any) -> None:
    events = [entry for entry in small_log.entries if entry.event is not None]
    assert len(events) > 40
    for entry in events:
        event = WitnessCheck(small_log.hub, small_log.checkpoint).event(
            small_log.witness(entry), entry
        )
        assert event == entry.event


def test_a_witness_reads_back_as_itself(witness: Witness) -> None:
    assert Witness.decode(witness.encode()) == witness


def lies(entry: QueryEntry) -> Iterator[QueryEntry]:
    assert entry.event is not None
    event = entry.event
    yield replace(entry, stream="record/app/jobs")
    yield replace(entry, seq=entry.seq + 1)
    yield replace(entry, hub_ts=entry.hub_ts + 1)
    yield replace(entry, leaf_hash=bytes(32))
    yield replace(entry, event=None)
    yield replace(entry, event=replace(event, subject_id="another"))
    yield replace(entry, event=replace(event, event_type="another"))
    yield replace(entry, event=replace(event, event_time=event.event_time + 1))
    yield replace(entry, event=replace(event, origin="another"))
    yield replace(entry, event=replace(event, principal_id=bytes(32)))
    yield replace(entry, event=replace(event, payload=AnyItem(b"\x01")))


@pytest.mark.parametrize("number", range(11))
def test_refuses_an_entry_that_says_otherwise(
    small_log: Any, entry: QueryEntry, witness: Witness, number: int
) -> None:
    assert entry.stream != "record/app/jobs"
    lie = list(lies(entry))[number]
    with pytest.raises(
        Untrusted,
        match=f"{lie.stream} [0-9]+ ?(: the recorded event differs|: no valid inclusion proof)",
    ):
        WitnessCheck(small_log.hub, small_log.checkpoint).event(witness, lie)


def test_refuses_every_flipped_bit_of_a_witness(
    small_log: Any, entry: QueryEntry, witness: Witness
) -> None:
    raw = witness.encode()
    for bit in range(0, 8 * len(raw), 7):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(VeenError):
            WitnessCheck(small_log.hub, small_log.checkpoint).event(
                Witness.decode(bytes(changed)), entry
            )


def test_refuses_a_receipt_of_another_hub(
    small_log: Any, entry: QueryEntry, witness: Witness
) -> None:
    receipt = Receipt.decode(witness.receipt).signed(SigningKey(h(b"another hub")))
    forged = replace(witness, receipt=receipt.encode())
    with pytest.raises(Untrusted, match="not signed by a key valid at its hub_ts"):
        WitnessCheck(small_log.hub, small_log.checkpoint).event(forged, entry)


def test_refuses_a_message_signed_by_another(
    small_log: Any, entry: QueryEntry, witness: Witness
) -> None:
    msg = Msg.decode(witness.msg).signed(SigningKey(h(b"another client")))
    forged = replace(witness, msg=msg.encode())
    with pytest.raises(Untrusted, match="not signed by its client"):
        WitnessCheck(small_log.hub, small_log.checkpoint).event(forged, entry)


@pytest.mark.parametrize("field", ["leaf_hash", "label"])
def test_refuses_a_receipt_of_another_message_that_the_hub_itself_signed(
    small_log: Any, entry: QueryEntry, witness: Witness, field: str
) -> None:
    receipt = changed(Receipt.decode(witness.receipt), **{field: bytes(32)})
    forged = replace(witness, receipt=receipt.signed(small_log.hub_key).encode())
    with pytest.raises(Untrusted, match="the receipt is of another message"):
        WitnessCheck(small_log.hub, small_log.checkpoint).event(forged, entry)


def test_refuses_a_message_that_the_hub_put_into_another_stream(
    new_recorded_log: Callable[..., Any],
) -> None:
    log = new_recorded_log(query_histories.history(8, 20))
    moved = next(entry for entry in log.entries if entry.event is not None)
    results = "record/query/results"
    raw, _, body_key = log.pairs[moved.stream, moved.seq]
    root = log.nodes[results].append(moved.leaf_hash)
    receipt = Receipt(
        label=log.label(moved.stream), stream_seq=1, leaf_hash=moved.leaf_hash, mmr_root=root,
        hub_ts=moved.hub_ts,
    ).signed(log.hub_key)  # fmt: skip
    log.pairs[results, 1] = raw, receipt.encode(), body_key
    later = log.make_checkpoint(1_800_000_000)
    shown = log.witness(replace(moved, stream=results, seq=1), later)
    with pytest.raises(Untrusted, match="the message is of another stream"):
        WitnessCheck(log.hub, later).entry(shown, results)


def test_refuses_a_message_behind_the_checkpoint(new_recorded_log: Callable[..., Any]) -> None:
    log = new_recorded_log(query_histories.history(8, 20))
    old = log.checkpoint
    last = next(entry for entry in reversed(log.entries) if entry.event is not None)
    newer = log.append(last.stream, last.hub_ts, last.event)
    later = log.make_checkpoint(old.created_at + 1)
    shown = log.witness(newer, later)
    assert WitnessCheck(log.hub, later).entry(shown, newer.stream) == newer
    with pytest.raises(Untrusted, match="no valid inclusion proof"):
        WitnessCheck(log.hub, old).entry(shown, newer.stream)


def test_refuses_a_stream_the_checkpoint_does_not_speak_of(
    small_log: Any, entry: QueryEntry, witness: Witness
) -> None:
    checkpoint = small_log.make_checkpoint(1_700_100_000, ["record/query/results"])
    with pytest.raises(Untrusted, match="does not cover"):
        WitnessCheck(small_log.hub, checkpoint).event(witness, entry)
    with pytest.raises(Untrusted, match="does not cover"):
        verified(entry, checkpoint)


def test_without_evidence_the_summary_says_only_that(a_descriptor: Any) -> None:
    asked = a_descriptor(evidence={"mode": "none"})
    assert evidence_summary(asked, "r-1", LINES) == {"mode": "none"}
    assert evidence_hash(asked, "r-1", LINES) == query_oracle.digest({"mode": "none"})


@pytest.mark.parametrize("policy", [{"mode": "full"}, {"mode": "spot", "sample_rate": 0.25}])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_hash_is_that_of_the_summary(
    a_descriptor: Any, policy: dict[str, Any], count: int
) -> None:
    asked = a_descriptor(evidence=policy)
    summary = evidence_summary(asked, "r-1", LINES[:count])
    assert summary == {
        "query_id": "q-1", "result_id": "r-1", **policy,
        "verified": [
            {"receipt_id": item.receipt_id, "mmr_root": item.mmr_root, "hub_id": item.hub_id}
            for item in LINES[:count]
        ],
    }  # fmt: skip
    assert evidence_hash(asked, "r-1", LINES[:count]) == query_oracle.digest(summary)
    assert canonical_json.encode(summary).decode() == query_oracle.jcs(summary)


def test_a_line_has_the_root_of_the_stream_in_the_checkpoint(
    small_log: Any, entry: QueryEntry
) -> None:
    line = verified(entry, small_log.checkpoint)
    end = small_log.checkpoint.end(entry.stream)
    assert line.receipt_id == "rcpt-" + entry.leaf_hash.hex()
    assert line == (entry.receipt_id, end.mmr_root.hex(), small_log.hub.hub_id.hex())


@pytest.mark.parametrize(("mode", "all_of_them"), [("none", False), ("full", True)])
def test_none_and_full_do_not_draw(mode: Any, all_of_them: bool) -> None:
    policy = EvidencePolicy(mode)
    assert all(is_sampled(policy, "q", ROOT, i) is all_of_them for i in range(100))


def test_a_rate_of_one_takes_every_row_and_the_smallest_none() -> None:
    assert all(is_sampled(EvidencePolicy("spot", 1.0), "q", ROOT, i) for i in range(2000))
    assert not any(is_sampled(EvidencePolicy("spot", 5e-324), "q", ROOT, i) for i in range(2000))


def test_a_rate_takes_about_its_share_and_more_with_a_higher_rate() -> None:
    few = {i for i in range(5000) if is_sampled(EvidencePolicy("spot", 0.1), "q", ROOT, i)}
    more = {i for i in range(5000) if is_sampled(EvidencePolicy("spot", 0.3), "q", ROOT, i)}
    assert 400 < len(few) < 600
    assert few < more


def test_another_root_or_query_draws_other_rows() -> None:
    policy = EvidencePolicy("spot", 0.5)
    picks = {
        tuple(is_sampled(policy, query_id, root, i) for i in range(64))
        for query_id in ("q", "r") for root in (ROOT, bytes(32))
    }  # fmt: skip
    assert len(picks) == 4
