"""The events of the demonstration: HTTP requests, logins and hosts of a small company."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_SERVICES: Final = ("shop", "billing", "search", "intranet")
_PATHS: Final = ("/", "/cart", "/orders/17", "/login", "/search?q=pump", "/admin", "/invoice/9")
_STATUS: Final = (200, 200, 200, 200, 204, 302, 404, 500)
_HOSTS: Final = ("web-1", "web-2", "db-1", "queue-1")
_STEP_MS: Final = 180
SUSPECT: Final = "user:mallory"
"""The subject of the demonstration's query."""


def events(seed: int, start_ms: int, counts: dict[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Events by producer, as lines for ``veen recorder emit``; deterministic for a seed."""
    chance = random.Random(seed)  # noqa: S311 - a workload, not a secret
    makers = {"gateway": _http, "access": _access, "hosts": _host}
    return {
        name: [makers[name](chance, start_ms + number * _STEP_MS) for number in range(count)]
        for name, count in counts.items()
    }


def write(folder: Path, document: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, Path]]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in document.items():
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
        yield name, path


def _http(chance: random.Random, at: int) -> dict[str, Any]:
    status = chance.choice(_STATUS)
    payload = {
        "method": chance.choice(("GET", "GET", "GET", "POST")),
        "path": chance.choice(_PATHS),
        "status": status,
        "ms": int(chance.lognormvariate(3.2, 0.8)),
        "source": f"10.0.{chance.randrange(4)}.{chance.randrange(1, 255)}",
    }
    kind = "http.error" if status >= 500 else "http.access"
    return _event(kind, _someone(chance), chance.choice(_SERVICES), at, payload)


def _access(chance: random.Random, at: int) -> dict[str, Any]:
    who = _someone(chance)
    kind = chance.choices(
        ("login.succeeded", "login.failed", "role.granted", "key.used"), (70, 20, 2, 8)
    )[0]
    if who == SUSPECT:
        kind = chance.choice(("login.failed", "login.failed", "role.granted"))
    payload = {"method": chance.choice(("password", "badge", "token")), "attempt": 1}
    return _event(kind, who, "access-control", at, payload)


def _host(chance: random.Random, at: int) -> dict[str, Any]:
    host = chance.choice(_HOSTS)
    kind = chance.choices(
        ("disk.usage", "service.deployed", "host.alarm", "host.started"), (80, 10, 8, 2)
    )[0]
    payload: dict[str, Any] = {"host": host}
    if kind == "disk.usage":
        payload["percent"] = chance.randrange(20, 96)
    if kind == "service.deployed":
        payload["version"] = f"1.{chance.randrange(40)}.{chance.randrange(9)}"
    return _event(kind, f"host:{host}", "operations", at, payload)


def _someone(chance: random.Random) -> str:
    return SUSPECT if chance.random() < 0.03 else f"user:{chance.randrange(1, 60)}"


def _event(
    kind: str, subject: str, origin: str, at: int, payload: dict[str, Any]
) -> dict[str, Any]:
    return {
        "event_type": kind,
        "subject_id": subject,
        "origin": origin,
        "event_time": at,
        "payload": payload,
    }
