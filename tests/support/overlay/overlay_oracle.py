"""What each overlay comes to, message by message from left to right, and its bytes.

Written from the specification and the record of decisions, without the library under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from support.overlay.overlay_histories import SCHEMAS, OverlayMessage, cbor

MOST_NAMED = 16
Plain = dict[int, Any]


def integer(value: int) -> bytes:
    """The shortest two's complement, big-endian."""
    size = 1
    while not -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
        size += 1
    return value.to_bytes(size, "big", signed=True)


def lww(messages: Iterable[OverlayMessage]) -> Plain:
    best: dict[bytes, tuple[int, int, bytes]] = {}
    for message in messages:
        assert message.says is not None
        new = (message.says["ts"], message.stream_seq, message.says["value"])
        if message.says["key"] not in best or new[:2] > best[message.says["key"]][:2]:
            best[message.says["key"]] = new
    return {1: 1, 2: [[key, *best[key]] for key in sorted(best)]}


def orset(messages: Iterable[OverlayMessage]) -> Plain:
    adds: set[tuple[bytes, bytes]] = set()
    tombs: set[bytes] = set()
    for message in messages:
        assert message.says is not None
        if "tomb" in message.says:
            tombs.update(message.says["tomb"])
        else:
            adds.add((message.says["id"], message.says["elem"]))
    living = sorted(list(add) for add in adds if add[0] not in tombs)
    return {1: 1, 2: living, 3: sorted(tombs)}


def gcounter(messages: Iterable[OverlayMessage]) -> Plain:
    totals: dict[bytes, int] = {}
    for message in messages:
        assert message.says is not None
        totals[message.says["shard"]] = totals.get(message.says["shard"], 0) + message.says["delta"]
    return {1: 1, 2: [[shard, integer(totals[shard])] for shard in sorted(totals)]}


def ledger(messages: Iterable[OverlayMessage]) -> Plain:
    rows: dict[tuple[bytes, str], list[int]] = {}
    count = 0
    for message in messages:
        says = message.says
        assert says is not None
        count += 1
        payer, payee, unit = says["payer_account"], says["payee_account"], says.get("currency_code")
        for account in (payer, payee):
            row = rows.setdefault((account, unit or ""), [0, 0, 0])
            if payer != payee:
                row[0] += says["amount"] if account == payee else -says["amount"]
            if row[0] < row[1]:
                row[1:] = [row[0], message.stream_seq]
    return {
        1: 1,
        2: count,
        3: [[*key, integer(b), integer(low), at] for key, (b, low, at) in sorted(rows.items())],
    }


def statistics(messages: Iterable[OverlayMessage]) -> Plain:
    totals: list[int] = []
    counts: list[dict[Any, list[int]]] = [{}, {}, {}, {}, {}]
    for message in messages:
        says, size = message.says, len(message.body)
        assert says is not None
        ts, when = message.hub_ts, says["event_time"]
        if not totals:
            totals = [0, 0, size, size, ts, ts, when, when]
        totals = [
            totals[0] + 1, totals[1] + size, min(totals[2], size), max(totals[3], size),
            min(totals[4], ts), max(totals[5], ts), min(totals[6], when), max(totals[7], when),
        ]  # fmt: skip
        names = (says["event_type"], says["subject_id"], message.client_id, says["origin"])
        for name, rows in zip((*names, ts // 86_400), counts, strict=True):
            row = rows.setdefault(name, [0, 0])
            row[0] += 1
            row[1] += size
    state: Plain = {1: 1} | ({2: totals} if totals else {})
    return state | {
        key: [[name, *rows[name]] for name in sorted(rows)] for key, rows in enumerate(counts, 3)
    }


FOLDS: dict[str, Callable[[Iterable[OverlayMessage]], Plain]] = {
    "lww.map": lww,
    "orset": orset,
    "counter.map": gcounter,
    "wallet.ledger": ledger,
    "recorder.statistics": statistics,
}


def folded(overlay: str, messages: list[OverlayMessage]) -> bytes:
    """The encoding of the state and of what was skipped."""
    schema = SCHEMAS[overlay]
    opened = [message for message in messages if message.schema]
    foreign = [message.stream_seq for message in opened if message.schema != schema]
    malformed = [m.stream_seq for m in opened if m.schema == schema and m.says is None]
    unopened = [message.stream_seq for message in messages if not message.schema]
    state = FOLDS[overlay]([m for m in opened if m.schema == schema and m.says is not None])
    skipped = [[len(places), places[:MOST_NAMED]] for places in (foreign, malformed, unopened)]
    return cbor({1: 1, 2: state, 3: skipped})
