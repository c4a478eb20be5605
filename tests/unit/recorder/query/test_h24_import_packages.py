"""H24: packages and replays over import streams, and what they must not take for proven."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from recorder import timestamp
from recorder.query.evidence import VerifiedStream, receipted
from recorder.query.execute import StreamSpan, digest_of, run, searched
from recorder.query.package_verify import ClaimOutcome, ClaimState, PackageVerdict, check
from recorder.query.rerun import Horizon, ResultDiffers, to_read, verify_complete
from support.recorder import query_histories, query_proven
from support.recorder.query_proven import RECORDER, trust_of
from support.recorder.recorded_log import MemoryNodes
from veen.crypto import SigningKey
from veen.digest import h
from veen.events import IMPORT_SCHEMA, ImportedEvent
from veen.hub_identity import new_identity
from veen.receipt import Receipt

TARGET = "import/app"
DAY = 86_400


@dataclass(frozen=True)
class Carried:
    """What the log seals for a bridge, which has one of its keys."""

    body: bytes
    principal_id: bytes = RECORDER

    def encode(self) -> bytes:
        return self.body


def imported(log: Any, origin: Any, hub_ts: int, **changes: Any) -> list[Any]:
    """Let all events of one stream of the origin in, in their order."""
    stream = query_histories.STREAMS[0]
    entries = [entry for entry in origin.entries if entry.stream == stream]
    entries = entries[::-1] if changes.get("reverse") else entries
    result = []
    for position, entry in enumerate(entries):
        raw, receipt, body_key = origin.pairs[stream, entry.seq]
        event = ImportedEvent(
            source_hub_id=origin.hub.hub_id, origin_stream=stream, origin_msg=raw,
            origin_receipt=changes.get("receipt", lambda item: item)(receipt), body_key=body_key,
            bundle_id=h(b"a bundle"), position=position, count=len(entries), import_time=hub_ts,
            bridge_id=RECORDER,
        )  # fmt: skip
        place = log.append(TARGET, hub_ts + position * DAY, Carried(event.encode()), IMPORT_SCHEMA)
        at = VerifiedStream(TARGET, log.hub)
        msg, receipt, key = log.pairs[TARGET, place.seq]
        result.append(receipted(msg, receipt, key, at))
    return result


@pytest.fixture
def origin(new_recorded_log: Callable[..., Any]) -> Any:
    return new_recorded_log(
        [replace(item, is_event=True) for item in query_histories.history(11, 9)]
    )


@pytest.fixture
def log(new_recorded_log: Callable[..., Any], origin: Any) -> Any:
    return zone_of(new_recorded_log, origin)


def zone_of(new_log: Callable[..., Any], origin: Any, **changes: Any) -> Any:
    """Its imports came a day apart, long after they were recorded at their origin."""
    result = new_log([])
    result.nodes[TARGET] = MemoryNodes()
    start = max(entry.hub_ts for entry in origin.entries) + DAY
    result.entries = imported(result, origin, start, **changes)
    streams = (TARGET, "record/query/requests", "record/query/results")
    make_checkpoint = result.make_checkpoint
    result.make_checkpoint = lambda at: make_checkpoint(at + 100 * DAY, streams)
    result.checkpoint = make_checkpoint(start + 50 * DAY, streams)
    return result


def detail(verdict: PackageVerdict, name: str) -> ClaimState:
    return next(claim.state for claim in verdict.claims if claim.name == name)


def package_over(log: Any, a_descriptor: Callable[..., Any]) -> Any:
    return query_proven.package_of(log, a_descriptor(scope=[TARGET], evidence={"mode": "full"}))


def test_h24_that_an_origin_signed_is_unproven_without_its_identity(
    log: Any, origin: Any, a_descriptor: Callable[..., Any]
) -> None:
    package = package_over(log, a_descriptor)
    alone = check(package, trust_of(log))
    assert not alone.failed, alone.reason
    assert (alone.outcome, detail(alone, "origins")) == (
        ClaimOutcome.PROVEN,
        ClaimState.NOT_COVERED,
    )
    assert "origins unproven: no identity of hub" in alone.summary
    known = check(package, replace(trust_of(log), origin={origin.hub.hub_id: origin.hub}.get))
    assert (known.outcome, detail(known, "origins")) == (ClaimOutcome.PROVEN, ClaimState.HELD)
    assert "origins" not in known.summary


def test_h24_a_place_that_no_origin_signed_for_is_refused(
    new_recorded_log: Callable[..., Any], origin: Any, a_descriptor: Callable[..., Any]
) -> None:
    """A recorder and a bridge invent an event of another zone, with a receipt of their own."""
    other = SigningKey(h(b"no key of the origin's hub"))

    def forged(raw: bytes) -> bytes:
        return replace(Receipt.decode(raw), hub_sig=other.sign(h(raw))).encode()

    log = zone_of(new_recorded_log, origin, receipt=forged)
    trust = replace(trust_of(log), origin={origin.hub.hub_id: origin.hub}.get)
    result = check(package_over(log, a_descriptor), trust)
    assert (result.outcome, detail(result, "origins")) == (ClaimOutcome.FAILED, ClaimState.FAILED)
    stranger = new_identity(other.public, 0, "none")
    trust = replace(trust_of(log), origin=lambda _hub_id: stranger)
    assert detail(check(package_over(log, a_descriptor), trust), "origins") is ClaimState.FAILED


@pytest.mark.parametrize("side", ["from", "to"])
def test_h24_an_import_stream_is_searched_whole_whatever_the_time(
    log: Any, a_descriptor: Callable[..., Any], side: str
) -> None:
    """Narrowed by the time of the import, which says nothing about the time at the origin."""
    middle = timestamp.render(log.entries[1].hub_ts * 1000)
    descriptor = a_descriptor(scope=[TARGET], filter={"time": {side: middle}})
    package = query_proven.package_of(log, descriptor)
    (item,) = package.digest.searched
    assert (item.from_seq, item.to_seq) != (1, len(log.entries))
    assert detail(check(package, trust_of(log)), "searched") is ClaimState.FAILED
    horizon = Horizon.of(log.checkpoint, descriptor)
    spans = to_read(descriptor, package.digest, horizon)
    with pytest.raises(ResultDiffers, match="was left out"):
        verify_complete(descriptor, package.digest, horizon, log.within(spans), log.proofs(spans))


@pytest.mark.parametrize("half", [0, 2])
def test_h24_imports_that_came_in_another_order_are_replayed(
    new_recorded_log: Callable[..., Any], origin: Any, a_descriptor: Callable[..., Any], half: int
) -> None:
    """Rows are in the order of the origin; of a bundle that was not whole none counts."""
    log = zone_of(new_recorded_log, origin, reverse=True)
    descriptor = a_descriptor(scope=[TARGET])
    whole = StreamSpan(1, len(log.entries))
    counted = log.entries[: len(log.entries) - half]
    outcome = run(
        descriptor, sorted(counted, key=lambda item: item.order_key), log.checkpoint.log_root
    )
    digest = digest_of(
        descriptor, outcome, result_id="r-1", executed_at_ms=1, checkpoint=log.checkpoint,
        searched=searched(descriptor, log.checkpoint, {TARGET: whole}, outcome.unread),
    )  # fmt: skip
    horizon = Horizon.of(log.checkpoint, descriptor)
    spans = to_read(descriptor, digest, horizon)
    left = frozenset((TARGET, entry.seq) for entry in log.entries[len(counted) :])
    result = verify_complete(
        descriptor, digest, horizon, log.within(spans), log.proofs(spans), left
    )
    assert result == outcome
