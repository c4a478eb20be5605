"""Queries answered in the most obvious way, for every engine to be compared with.

Nothing here uses the library under test: JSON is written by the encoder below, hashes are
hashlib's. An event is a dict of the fields of ``query_histories.HistoryItem``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from typing import Any

SAFE = 2**53 - 1


def jcs(value: Any) -> str:
    """Canonical JSON: RFC 8785 with keys by their UTF-8 bytes."""
    if isinstance(value, dict):
        pairs = sorted(value.items(), key=lambda pair: pair[0].encode())
        return "{" + ",".join(f"{jcs(key)}:{jcs(item)}" for key, item in pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(jcs(item) for item in value) + "]"
    if isinstance(value, float):
        return double(value)
    return json.dumps(value, ensure_ascii=False)


def double(value: float) -> str:
    """A number as ECMAScript writes it."""
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + int(exponent)
    if 0 < point <= 21:
        whole = text.ljust(point, "0")
        written = whole[:point] + ("." + whole[point:] if whole[point:] else "")
    elif -6 < point <= 0:
        written = "0." + "0" * -point + text
    else:
        power = point - 1
        fraction = "." + text[1:] if text[1:] else ""
        written = f"{text[0]}{fraction}e{'+' if power > 0 else '-'}{abs(power)}"
    return ("-" if sign else "") + written


def digest(value: Any) -> str:
    return sha256(jcs(value).encode()).hexdigest()


def iso(ms: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def to_ms(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def answer(query: dict[str, Any], events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a query; ``event_time`` is in ms, ``hub_ts`` in seconds, payload is JSON."""
    result = matching(query, events)
    if query.get("aggregate") is not None:
        return grouped(query["aggregate"], result)
    names = query["projection"]
    if names == ["*"]:
        names = [
            "stream", "hub_commit_seq", "hub_commit_time", "subject_id", "principal_id",
            "event_type", "event_time", "origin", "payload", "receipt_id",
        ]  # fmt: skip
    names = ["payload" if name == "payload.*" else name for name in names]
    return [{name: field(event, name) for name in names} for event in result]


def matching(query: dict[str, Any], events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events that a query takes, in the order of rows."""
    ordered = sorted(events, key=lambda e: (e["hub_ts"], e["stream"].encode(), e["seq"]))
    return [event for event in ordered if requested(query, event)]


def requested(query: dict[str, Any], event: dict[str, Any]) -> bool:
    if not event["is_event"] or event["stream"] not in query["scope"]:
        return False
    wish = query["filter"]
    for name in ("subject_id", "origin", "principal_id"):
        if wish.get(name) is not None and event[name] != wish[name]:
            return False
    if wish.get("event_type") is not None and event["event_type"] not in wish["event_type"]:
        return False
    time = wish.get("time") or {}
    if time.get("from") is not None and event["hub_ts"] * 1000 < to_ms(time["from"]):
        return False
    return not (time.get("to") is not None and event["hub_ts"] * 1000 > to_ms(time["to"]))


def field(event: dict[str, Any], name: str) -> Any:
    if name == "hub_commit_seq":
        return event["seq"]
    if name == "hub_commit_time":
        return iso(event["hub_ts"] * 1000)
    if name == "event_time":
        return iso(event["event_time"])
    if name == "receipt_id":
        return "rcpt-" + event["leaf_hash"]
    if name == "payload":
        return big_as_text(event["payload"])
    if name.startswith("payload."):
        return big_as_text(at_path(event["payload"], name))
    return event[name]


def at_path(payload: Any, name: str) -> Any:
    plain = name.replace("\\\\", "\x00").replace("\\.", "\x01").replace("\\*", "\x02")
    for step in plain.split(".")[1:]:
        key = step.replace("\x00", "\\").replace("\x01", ".").replace("\x02", "*")
        if isinstance(payload, dict) and key in payload:
            payload = payload[key]
        elif isinstance(payload, list) and key in [str(i) for i in range(len(payload))]:
            payload = payload[int(key)]
        else:
            return None
    return payload


def big_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: big_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [big_as_text(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -SAFE <= value <= SAFE:
        return str(value)
    return value


def grouped(aggregate: dict[str, Any], events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = aggregate.get("group_by") or []
    groups: dict[str, list[dict[str, Any]]] = {} if names else {"[]": []}
    for event in events:
        key = jcs([field(event, name) for name in names])
        groups.setdefault(key, []).append(event)
    rows = []
    for key in sorted(groups, key=str.encode):
        members = groups[key]
        row = {name: field(members[0], name) for name in names}
        rows.append(row | {metric: measure(metric, members) for metric in aggregate["metrics"]})
    return rows


def measure(metric: str, events: list[dict[str, Any]]) -> Any:
    if metric == "count":
        return len(events)
    function, name = metric[:3], metric[4:-1]
    if name == "event_time":
        return of_times(function, [event["event_time"] for event in events])
    values = [at_path(event["payload"], name) for event in events]
    return of_numbers(function, [v for v in values if type(v) in (int, float)])


def of_times(function: str, times: list[int]) -> Any:
    if not times:
        return None
    if function == "sum":
        return big_as_text(sum(times))
    chosen = {"min": min(times), "max": max(times), "avg": sum(times) // len(times)}
    return iso(chosen[function])


def of_numbers(function: str, numbers: list[int | float]) -> Any:
    if not numbers:
        return None
    if function in ("min", "max"):
        best = min(numbers) if function == "min" else max(numbers)
        equal = [number for number in numbers if number == best]
        return big_as_text(next((item for item in equal if isinstance(item, int)), best))
    total = sum((Fraction(number) for number in numbers), Fraction(0))
    if function == "sum" and all(isinstance(number, int) for number in numbers):
        return big_as_text(int(total))
    try:
        return float(total if function == "sum" else total / len(numbers))
    except OverflowError:
        return None


def sampled(query_id: str, log_root: bytes, rate: float, index: int) -> bool:
    text = b"veen/query-sample\x00" + query_id.encode() + log_root + index.to_bytes(8, "big")
    return Fraction(int.from_bytes(sha256(text).digest()[:8], "big"), 2**64) < Fraction(rate)
