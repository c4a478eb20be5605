"""Random histories of several streams and random queries over them.

Nothing here uses the library under test. The same arguments give the same history.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

STREAMS = ("record/app/http", "record/app/jobs", "record/users", "record/\u00e9t\u00e9")
SUBJECTS = ("user:1", "user:2", "user:3", "d\u00e9p\u00f4t", "user\U0001f600")
TYPES = ("http.request", "http.error", "job.done", "login")
ORIGINS = ("api-1", "api-2", "worker")
START = 1_700_000_000
WORDS = ("", "a", "GET", "9007199254740993", '\u20ac"\\\n', "\ufb01\U0001f600", "null")
NUMBERS: tuple[int | float, ...] = (
    0, 1, -1, 7, 200, 404, 2**53 - 1, 2**53, -(2**53), 2**64 - 1, -(2**64), 0.0, -0.0, 1.0, 0.1,
    0.2, 0.3, 1e21, 1e-7, 5e-324, 9007199254740992.0, 1.7976931348623157e308, 1e300, -1e300,
)  # fmt: skip
KEYS = ("status", "ms", "path", "a.b", "0", "list", "deep", "*", "\\", "\U0001f600", "ok")
PATHS = (
    "payload.status", "payload.ms", "payload.path", "payload.a\\.b", "payload.0", "payload.list.0",
    "payload.list.1", "payload.list.00", "payload.deep.status", "payload.deep.deep.ms",
    "payload.\\*", "payload.\\\\", "payload.\U0001f600", "payload.ok", "payload.nowhere.at.all",
)  # fmt: skip
PLAIN = (
    "stream", "hub_commit_seq", "hub_commit_time", "subject_id", "principal_id", "event_type",
    "event_time", "origin", "receipt_id",
)  # fmt: skip


@dataclass(frozen=True)
class HistoryItem:
    """An event and its place; ``is_event`` is false for a message that only stands there."""

    stream: str
    seq: int
    hub_ts: int
    leaf_hash: str
    is_event: bool
    subject_id: str
    principal_id: str
    event_type: str
    event_time: int
    origin: str
    payload: Any

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def principal_seed(number: int) -> bytes:
    """The private key by which a principal signs its messages."""
    return sha256(f"principal {number}".encode()).digest()


@lru_cache
def principal(number: int) -> str:
    key = Ed25519PrivateKey.from_private_bytes(principal_seed(number))
    return key.public_key().public_bytes_raw().hex()


def history(seed: int, size: int) -> list[HistoryItem]:
    """Events in the order of a hub that takes them one after another; its time never goes back."""
    draw = random.Random(f"history {seed}")
    seqs = dict.fromkeys(STREAMS, 0)
    items, now = [], START
    for number in range(size):
        now += draw.choice((0, 0, 0, 1, 1, 2, 30))
        stream = draw.choice(STREAMS)
        seqs[stream] += 1
        items.append(_item(draw, stream, seqs[stream], now, number))
    return items


def queries(seed: int, count: int) -> list[dict[str, Any]]:
    draw = random.Random(f"queries {seed}")
    return [query(draw, number) for number in range(count)]


def query(draw: random.Random, number: int) -> dict[str, Any]:
    """A valid descriptor as a client might send it, partial or whole."""
    result: dict[str, Any] = {
        "query_id": f"q-{number}",
        "scope": draw.sample(STREAMS, draw.randint(1, len(STREAMS))),
        "filter": _filter(draw),
        "projection": _projection(draw),
        "evidence": _evidence(draw),
    }
    if draw.random() < 0.5:
        result["version"] = 1
    if draw.random() < 0.3:
        result["meta"] = {"reason": draw.choice(WORDS), "n": draw.choice((1, 0.5, None))}
    if draw.random() < 0.45:
        result["aggregate"] = _aggregate(draw)
    return result


def value(draw: random.Random, depth: int = 3) -> Any:
    kind = draw.random()
    if depth and kind < 0.2:
        keys = draw.sample(KEYS, draw.randint(0, 4))
        return {key: value(draw, depth - 1) for key in keys}
    if depth and kind < 0.3:
        return [value(draw, depth - 1) for _ in range(draw.randint(0, 3))]
    if kind < 0.75:
        return draw.choice(NUMBERS)
    return draw.choice((*WORDS, None, True, False))


def _item(draw: random.Random, stream: str, seq: int, now: int, number: int) -> HistoryItem:
    payload = value(draw)
    if draw.random() < 0.8:
        payload = {key: value(draw, 2) for key in draw.sample(KEYS, draw.randint(0, 7))}
    return HistoryItem(
        stream=stream,
        seq=seq,
        hub_ts=now,
        leaf_hash=sha256(f"leaf {number}".encode()).hexdigest(),
        is_event=draw.random() < 0.95,
        subject_id=draw.choice(SUBJECTS),
        principal_id=principal(draw.randint(1, 3)),
        event_type=draw.choice(TYPES),
        event_time=draw.choice((now * 1000 - draw.randint(0, 9999), 0, 253_402_300_799_999)),
        origin=draw.choice(ORIGINS),
        payload=payload,
    )


def _filter(draw: random.Random) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if draw.random() < 0.4:
        result["subject_id"] = draw.choice((*SUBJECTS, None, "nobody"))
    if draw.random() < 0.4:
        result["event_type"] = draw.choice((None, draw.choices(TYPES, k=draw.randint(1, 3))))
    if draw.random() < 0.2:
        result["origin"] = draw.choice((*ORIGINS, None))
    if draw.random() < 0.2:
        result["principal_id"] = principal(draw.randint(1, 4))
    if draw.random() < 0.6:
        result["time"] = _time(draw)
    return result


def _time(draw: random.Random) -> dict[str, Any] | None:
    ends = sorted(draw.randint(-100, 3000) for _ in range(2))
    times = [_iso(draw, START + end) for end in ends]
    start, end = draw.choice(times[:1] * 2 + [None]), draw.choice(times[1:] * 2 + [None])
    if start is not None and end is not None and ends[0] == ends[1]:
        return None
    return {"from": start, "to": end} if draw.random() < 0.8 else {"from": start}


def _iso(draw: random.Random, seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    day = days - 19_675  # since 2023-11-14, on which START lies
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"2023-11-{14 + day:02d}T{clock}{draw.choice(('', '.0', '.5', '.999', '.000'))}Z"


def _projection(draw: random.Random) -> list[str]:
    if draw.random() < 0.15:
        return ["*"]
    names = [*PLAIN, *PATHS, draw.choice(("payload", "payload.*"))]
    return draw.sample(names, draw.randint(1, 8))


def _evidence(draw: random.Random) -> dict[str, Any]:
    return draw.choice(
        (
            {"mode": "none"},
            {"mode": "none", "sample_rate": None},
            {"mode": "full"},
            {"mode": "spot", "sample_rate": 1},
            {"mode": "spot", "sample_rate": 0.1},
            {"mode": "spot", "sample_rate": draw.random() or 0.5},
        )
    )


def _aggregate(draw: random.Random) -> dict[str, Any]:
    names = [*PLAIN, *PATHS]
    measured = ["event_time", *PATHS]
    calls = [f"{name}({item})" for name in ("min", "max", "sum", "avg") for item in measured]
    result: dict[str, Any] = {"metrics": draw.sample(["count", *calls], draw.randint(1, 8))}
    if draw.random() < 0.8:
        result["group_by"] = draw.sample(names, draw.randint(0, 3))
    return result
