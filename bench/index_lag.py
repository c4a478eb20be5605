"""How far the index falls behind a hub that takes events as fast as it can, and its own pace.

Hub, writers and follower share the cores. Events are sealed to the follower and signed beforehand;
the follower is ``veen recorder index follow`` in a process of its own, with one that opens beside
it: it reads, verifies both signatures and every root, opens, and writes rows, keys and nodes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bare
import feed
import indexed
import sample
import served
from line import Line, drive
from measure import Measurement

from recorder.index.reader import status
from recorder.index.tables import IndexHome
from veen import msg
from veen.digest import h, u64be
from veen.events import RecordEvent
from veen.keystore.directory import ClientDir
from veen.label import DEFAULT_PROFILE
from veen.payload import SealPlace, open_payload, seal_payload
from veen.wire.api import BatchRequest

EVENTS = int(os.environ.get("BENCH_LAG_EVENTS", "16384"))
LINES, BATCH, BARE = 2, 256, 1_000
_VEEN = Path(sys.executable).with_name("veen")
_PATIENCE_SEC = 600
HUB = f"""
[[streams]]
name = "{feed.STREAM}"
"""


@dataclass(frozen=True, slots=True)
class Lagged:
    """What was seen of one run, in seconds and entries."""

    ingest_sec: float
    behind_sec: float
    most_entries: int


def measure() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir="/var/tmp") as folder:
        root = Path(folder)
        (root / "hub.toml").write_text(HUB)
        identity = ClientDir(root / "reader").create(
            now=int(time.time()), random=os.urandom, passphrase=None
        )
        with served.hub("--reads", "open", "--config", str(root / "hub.toml")) as hub:
            requests = _requests(hub, identity.card.recipient(int(time.time())))
            run = _run(hub, root, requests)
            pace = _from_nothing(hub, root)
    work = 2 * bare.verify(BARE) + _bare_open(BARE)
    yield Measurement(
        bench="index_lag",
        value=run.behind_sec,
        unit=f"s behind after {EVENTS} events at full ingest",
        against="the time that the hub took for them",
        ratio=run.behind_sec / run.ingest_sec,
    )
    yield Measurement(
        bench="index_lag_entries", value=run.most_entries, unit="entries behind at the most"
    )
    yield Measurement(
        bench="index_pace",
        value=pace,
        unit="events/s, hub at rest",
        against="two bare Ed25519 verifications and one bare open, one after another",
        ratio=pace * work,
    )


def _run(hub: served.Served, root: Path, requests: list[list[bytes]]) -> Lagged:
    lines, took = hub.even_lines(LINES), [0.0]

    def ingest() -> None:
        took[0] = drive(lines, requests).seconds

    with _following(hub, root, "index") as home, hub.line() as line:
        sending = threading.Thread(target=ingest)
        begun = time.perf_counter()
        sending.start()
        most, ended = 0, 0.0
        while (indexed_now := _indexed(home)) < EVENTS:
            if not ended and not sending.is_alive():
                ended = time.perf_counter()
            most = max(most, _head(line) - indexed_now)
            time.sleep(0.05)
            assert time.perf_counter() - begun < _PATIENCE_SEC
        sending.join()
        behind = time.perf_counter() - (ended or time.perf_counter())
    return Lagged(took[0], behind, most)


def _from_nothing(hub: served.Served, root: Path) -> float:
    """Events a second of a new index, while nothing else happens."""
    begun = time.perf_counter()
    with _following(hub, root, "fresh") as home:
        while not (first := _indexed(home)):
            time.sleep(0.01)
        begun = time.perf_counter()
        while _indexed(home) < EVENTS:
            time.sleep(0.01)
            assert time.perf_counter() - begun < _PATIENCE_SEC
    return (EVENTS - first) / (time.perf_counter() - begun)


@contextmanager
def _following(hub: served.Served, root: Path, name: str) -> Iterator[IndexHome]:
    home = IndexHome(root / name)
    command = [
        str(_VEEN), "recorder", "index", "follow", "--hub", f"http://127.0.0.1:{hub.port}",
        "--client", str(root / "reader"), "--index", str(home.root), "--quiet",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        while not home.exists() or not status(home, 0).streams:
            assert process.poll() is None, "the follower has ended"
            time.sleep(0.02)
        yield home
    finally:
        process.terminate()
        process.wait()


def _indexed(home: IndexHome) -> int:
    return sum(stream.indexed for stream in status(home, 0).streams)


def _head(line: Line) -> int:
    """What the hub has by now."""
    streams = json.loads(line.ask(line.get("/tooling/streams")).body)["streams"]
    return max(
        (label["last_stream_seq"] for stream in streams for label in stream["labels"]), default=0
    )


def _requests(hub: served.Served, recipient: bytes) -> list[list[bytes]]:
    """Batches of real events for each line, whose writer the hub knows."""
    result = []
    for writer in hub.writers(LINES):
        made = [_message(writer, recipient) for _ in range(EVENTS // LINES)]
        groups = [made[start : start + BATCH] for start in range(0, len(made), BATCH)]
        bodies = [BatchRequest(msgs=tuple(group)).encode() for group in groups]
        result.append([Line.post("/v1/submit_batch", body) for body in bodies])
    return result


def _message(writer: feed.Writer, recipient: bytes) -> bytes:
    writer.written += 1
    number = writer.written
    event = RecordEvent(
        subject_id=f"user:{number % 5_000}", principal_id=writer.key.public,
        event_type=f"type.{number % 20}", event_time=indexed.BEGIN * 1000 + number,
        origin=f"host-{number % 50}", payload=indexed.ITEM,
    )  # fmt: skip
    place = SealPlace(
        profile=DEFAULT_PROFILE, label=writer.label, client_id=writer.key.public,
        client_seq=number, prev_ack=0, auth_ref=writer.auth_ref,
    )  # fmt: skip
    sealed = seal_payload(
        recipient=recipient, ephemeral=h(writer.key.public + u64be(number)), place=place,
        header=sample.HEADER, body=event.encode(), limits=sample.LIMITS,
    )  # fmt: skip
    raw, _ = msg.issue(
        writer.key, profile_id=DEFAULT_PROFILE.profile_id(), label=writer.label, client_seq=number,
        prev_ack=0, auth_ref=writer.auth_ref, ciphertext=sealed.ciphertext,
    )  # fmt: skip
    return raw


def _bare_open(count: int) -> float:
    ciphertext = sample.a_ciphertext()
    begun = time.perf_counter()
    for _ in range(count):
        open_payload(
            private=sample.READER_PRIVATE, place=sample.PLACE, ciphertext=ciphertext,
            limits=sample.LIMITS,
        )  # fmt: skip
    return (time.perf_counter() - begun) / count
