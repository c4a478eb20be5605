"""H11: no request takes more memory of a worker than a full CBOR batch, whatever its body holds."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest

from support.hub import hub_process

MIB = 1 << 20
ROOM = 192 * MIB
"""What one request may take."""
JSON = 8 * MIB
TOML = """
admission = "gated"
issuers = ["%s"]
workers = 1
threads = 2
""" % ("ab" * 32)  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with hub_process.hub_in(tmp_path_factory.mktemp("h11"), TOML) as result:
        yield result


@pytest.fixture(scope="module")
def worker(hub: Any) -> psutil.Process:
    """The one worker, which from now on cannot have more than it has and one request may take."""
    result = max(hub.processes(), key=lambda item: len(item.parents()))
    assert len(result.parents()) == len(psutil.Process(hub.process.pid).parents()) + 2
    held = _kib(result.pid, "VmData") * 1024
    limits = (held + ROOM, resource.RLIM_INFINITY)
    resource.prlimit(result.pid, resource.RLIMIT_DATA, limits)
    return result


def _kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(f"/proc/{pid}/status has no {name}")


def repeated(part: bytes, size: int) -> bytes:
    return b'{"ver":1,"msgs":[' + part * ((size - 40) // len(part)) + b"0]}"


def keys(size: int) -> bytes:
    members = b",".join(b'"%x":{}' % item for item in range(size // 12))
    return b'{"ver":1,"msgs":[{' + members + b"}]}"


def wide(size: int) -> bytes:
    """One character beyond the basic plane makes every other one four bytes wide."""
    return b'{"ver":1,"msgs":["\xf0\x9f\x98\x80' + b"a" * (size - 40) + b'"]}'


COUNT = b"\xa2\x01\x01\x02\x9a\xff\xff\xff\xff"
"""A batch that announces four thousand million messages."""


def cbor_batch(size: int) -> bytes:
    """4096 messages of nothing, as large as a batch may be."""
    each = size // 4096 - 8
    message = b"\x5a" + each.to_bytes(4) + bytes(each)
    return b"\xa2\x01\x01\x02\x99" + (4096).to_bytes(2) + message * 4096


BODIES: list[tuple[str, str, Callable[[], bytes]]] = [
    ("zeros", "json", lambda: repeated(b"0,", JSON)),
    ("objects", "json", lambda: repeated(b"{},", JSON)),
    ("lists", "json", lambda: repeated(b"[],", JSON)),
    ("nested", "json", lambda: repeated(b"[[[[", JSON)),
    ("keys", "json", lambda: keys(JSON)),
    ("strings", "json", lambda: repeated(b'"a",', JSON)),
    ("one wide string", "json", lambda: wide(JSON)),
    ("64 MiB of JSON", "json", lambda: repeated(b"{},", 64 * MIB)),
    ("a full CBOR batch", "cbor", lambda: cbor_batch(32 * MIB)),
    ("CBOR of a huge count", "cbor", lambda: COUNT + bytes(32 * MIB - 16)),
]


@pytest.mark.parametrize("path", ["/v1/submit_batch"])
@pytest.mark.parametrize(("kind", "body"), [pytest.param(*rest, id=name) for name, *rest in BODIES])
def test_h11_one_request_takes_bounded_memory(
    hub: Any, worker: psutil.Process, path: str, kind: str, body: Callable[[], bytes]
) -> None:
    Path(f"/proc/{worker.pid}/clear_refs").write_text("5")
    before = _kib(worker.pid, "VmHWM")
    headers = {"Content-Type": f"application/{kind}"}
    reply = httpx.post(hub.url + path, content=body(), headers=headers, timeout=120)
    grown = (_kib(worker.pid, "VmHWM") - before) * 1024
    assert reply.status_code in (200, 400, 413), reply.text
    assert grown < ROOM, f"{grown / MIB:.0f} MiB"
    assert worker.is_running(), "the worker ended"


@pytest.mark.parametrize("path", ["/v1/submit", "/v1/stream", "/tooling/authorize"])
def test_h11_other_routes_count_values_too(hub: Any, worker: psutil.Process, path: str) -> None:
    Path(f"/proc/{worker.pid}/clear_refs").write_text("5")
    before = _kib(worker.pid, "VmHWM")
    size = 2 * MIB if path == "/v1/submit" else 65_536
    headers = {"Content-Type": "application/json"}
    reply = httpx.post(hub.url + path, content=repeated(b"{},", size), headers=headers, timeout=60)
    assert 400 <= reply.status_code < 500, reply.text
    assert (_kib(worker.pid, "VmHWM") - before) * 1024 < 32 * MIB
