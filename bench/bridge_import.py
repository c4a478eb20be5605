"""A bundle from its medium into an import stream, everything that counts as done included: copies,
verification, ledger, outbox, the hub with its workers on the same cores, receipts, audit.

Against the bare work that an event contains: two verifications of the origin's signatures, one of
the new receipt, one seal, the signatures of message and receipt; one after another.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import bare
import client_send
import feed
import served
from bridge_bundle import HUB, IDENTITY, STREAM, TRUST, _Log
from measure import Measurement, compare_timed

from bridge.carrier.format import CarrierLedger, Preset
from bridge.carrier.writer import Content, stage
from bridge.importer.outcome import ImportState
from bridge.importer.run import ImportRequest, run_import
from bridge.settings import load
from bridge.stream_map import OFFLINE_LOG
from bridge.trust import pin_exporter, pin_hub
from bridge.verify import verify_bundle
from veen.captoken import issue
from veen.client.client import Client
from veen.crypto import SigningKey
from veen.digest import h
from veen.keystore.directory import ClientDir
from veen.label import stream_id
from veen.system.environment import Runtime

EVENTS = 8_000
ROUNDS = 5
BARE = 1_000
EXPORTER = SigningKey(h(b"bench exporter"))
AROUND = Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)


def measure() -> Iterator[Measurement]:
    raw = _bundle()
    numbers = count(1)
    with served.hub() as hub, tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        result = compare_timed(
            lambda: _import(Path(folder) / str(next(numbers)), hub, raw), _bare_work, ROUNDS
        )
    yield Measurement(
        bench="bridge_import",
        value=1 / result.seconds,
        unit="events/s",
        against="three bare verifications, one seal and two signatures, one after another",
        ratio=1 / result.ratio,
        at_least=0.6,
    )


def _bundle() -> bytes:
    log = _Log(EVENTS)
    return log.bundle(log.events)


def _bare_work() -> float:
    """Seconds of what one event contains."""
    return 3 * bare.verify(BARE) + client_send.bare_seal() + 2 * bare.issue(BARE)


def _import(root: Path, hub: served.Served, raw: bytes) -> float:
    """Seconds of one event, into a zone and a stream of its own."""
    settings, medium = _zone(root, hub), _medium(root, raw)
    begun = time.perf_counter()
    result = run_import(load(settings), ImportRequest(operator="bench", media=(medium,)), AROUND)
    seconds = (time.perf_counter() - begun) / EVENTS
    assert [outcome.state for outcome in result.outcomes] == [ImportState.IMPORTED]
    return seconds


def _medium(root: Path, raw: bytes) -> Path:
    (root / "bundle").write_bytes(raw)
    (root / "medium").mkdir()
    with (root / "bundle").open("rb") as file:
        header = verify_bundle(file, TRUST, None).header
    ledger = CarrierLedger(bridge_id=h(b"bridge")).with_bundle(header)
    content = Content(file=root / "bundle", ledger=ledger)
    stage(content, Preset.ANY.packing(), EXPORTER, root / "medium")
    return root / "medium"


def _zone(root: Path, hub: served.Served) -> Path:
    target = f"import/bench-{root.name}"
    (root / "trust").mkdir(parents=True)
    pin_hub(root / "trust", IDENTITY, IDENTITY.signature_by(HUB))
    pin_exporter(root / "trust", "bench", EXPORTER.public)
    url = f"http://127.0.0.1:{hub.port}"
    for name, stream in (("bridge", target), ("audit", OFFLINE_LOG), ("reader", None)):
        _identity(root / name, url, stream)
    (root / "bridge.toml").write_text(f"""
zone = "offline"
name = "bench"
[hub]
url = "{url}"
hub_id = "{hub.identity.hub_id.hex()}"
[bridge]
client = "bridge"
capability = "bridge.cap"
[audit]
client = "audit"
capability = "audit.cap"
reader = "reader/identity_card.pub"
[import]
workers = 2
[[streams]]
hub_id = "{IDENTITY.hub_id.hex()}"
source = "{STREAM}"
target = "{target}"
""")
    return root / "bridge.toml"


def _identity(root: Path, url: str, stream: str | None) -> None:
    ClientDir(root).create(now=int(time.time()), random=os.urandom, passphrase=None)
    if stream is None:
        return
    with Client.open(root, url) as client:
        token = issue(
            feed.ISSUER,
            subject_pk=client.session.identity.client_id,
            stream_ids=[stream_id(stream)],
            ttl=10**6,
        )
        client.session.api.authorize(token)
    root.with_suffix(".cap").write_bytes(token.encode())
