"""Logs made from the protocol alone, as a dictionary of files; the same history in any chunks."""

from __future__ import annotations

import importlib.util
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from veen import captoken, cbor, checkpoint_index, hub_identity, layout, mmr, receipt
from veen.audit.context import Context, Depth, begin
from veen.audit.engine import Crew, Log, audit_log, audit_task, in_order
from veen.audit.findings import ChunkFindings, Task
from veen.audit.report import Report
from veen.audit.stock import take_stock
from veen.audit.trust import TrustCheck
from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.checkpoint_index import CheckpointRef
from veen.chunk import PeakSnapshot, Tally, read_entries
from veen.control import AUTHORIZE, ControlRecord, StreamRecord, control_label
from veen.digest import h
from veen.entry import Entry
from veen.hub_identity import CheckpointBinding
from veen.label import EpochLabels, routing_key
from veen.limits import Limits
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE, Profile
from veen.rate import Rate
from veen.receipt import Receipt
from veen.sign import PrivateKey

# Tests import the plants by their bare name; parameters are made of them.
_SPEC = importlib.util.spec_from_file_location("plants", Path(__file__).with_name("plants.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
sys.modules["plants"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sys.modules["plants"])

LONG = bool(os.environ.get("VEEN_TEST_LONG"))
START = 1_700_000_000
LIMITS = Limits(max_checkpoint_interval=8)
HOURLY = Profile(epoch_sec=3_600)
STREAMS = (
    StreamRecord(name="record/a", profile=DEFAULT_PROFILE),
    StreamRecord(name="record/b", profile=DEFAULT_PROFILE),
    StreamRecord(name="epoch/c", profile=HOURLY),
)
Files = dict[str, bytes]


def a_key(name: str) -> PrivateKey:
    return PrivateKey(h(name.encode()))


HUB, ISSUER = a_key("hub"), a_key("issuer")
IDENTITY = hub_identity.new_identity(HUB.public, START - 10, "none")


@dataclass
class Framed:
    """One entry of a history, before it is cut into chunks."""

    label: bytes
    seq: int
    msg: Msg
    receipt: Receipt

    def encode(self) -> bytes:
        entry = Entry(self.msg.encode(), self.receipt.encode())
        return entry.encode(self.label, self.seq)


@dataclass
class History:
    """What a hub with one key accepted, label by label."""

    now: int = START
    entries: dict[bytes, list[Framed]] = field(default_factory=dict)
    peaks: dict[bytes, mmr.Peaks] = field(default_factory=dict)
    sent: dict[tuple[bytes, bytes], int] = field(default_factory=dict)

    def label(self, stream: StreamRecord) -> bytes:
        labels = EpochLabels(routing_key(IDENTITY.hub_id), stream.stream_id(), stream.profile)
        return labels.at(stream.profile.epoch(self.now))

    def authorize(self, client: PrivateKey, rate: Rate | None = None) -> CapToken:
        token = captoken.issue(
            ISSUER,
            subject_pk=client.public,
            stream_ids=[one.stream_id() for one in STREAMS],
            ttl=10**6,
            rate=rate,
        )
        label = control_label(IDENTITY.hub_id)
        number = self._next(label, HUB)
        record = ControlRecord(kind=AUTHORIZE, body=token.encode())
        self.take(record.msg(IDENTITY.hub_id, HUB, number, self._head(label)))
        return token

    def send(self, client: PrivateKey, stream: StreamRecord, token: CapToken) -> None:
        self.take(self.message(client, stream, token).signed(client))

    def message(self, client: PrivateKey, stream: StreamRecord, token: CapToken) -> Msg:
        label, ciphertext = self.label(stream), bytes(40)
        return Msg(
            profile_id=stream.profile.profile_id(),
            label=label,
            client_id=client.public,
            client_seq=self._next(label, client),
            prev_ack=self._head(label),
            auth_ref=token.auth_ref(),
            ct_hash=h(ciphertext),
            ciphertext=ciphertext,
        )

    def take(self, msg: Msg) -> None:
        peaks = self.peaks.get(msg.label, mmr.EMPTY).append(msg.leaf_hash())
        self.peaks[msg.label] = peaks
        raw = receipt.issue(
            HUB, label=msg.label, stream_seq=peaks.size, leaf=msg.leaf_hash(),
            root=peaks.root(), hub_ts=self.now,
        )  # fmt: skip
        framed = Framed(msg.label, peaks.size, msg, Receipt.decode(raw))
        self.entries.setdefault(msg.label, []).append(framed)

    def _next(self, label: bytes, client: PrivateKey) -> int:
        number = self.sent.get((label, client.public), 0) + 1
        self.sent[label, client.public] = number
        return number

    def _head(self, label: bytes) -> int:
        return len(self.entries.get(label, ()))


def a_history(chance: random.Random, events: int) -> History:
    """Three clients, one of them held to a rate, in three streams."""
    history = History()
    clients = [a_key(f"client {number}") for number in range(3)]
    rates = [None, Rate(per_sec=5, burst=events), None]
    tokens = [history.authorize(one, rate) for one, rate in zip(clients, rates, strict=True)]
    for _ in range(events):
        which = chance.randrange(3)
        history.send(clients[which], chance.choice(STREAMS), tokens[which])
        history.now += chance.choice([0, 0, 0, 1, 2])
    return history


def laid_out(history: History, cut: Callable[[], int]) -> Files:
    """The files of a history whose chunks hold ``cut()`` entries; the last one stays open."""
    files: Files = {
        layout.IDENTITY: IDENTITY.encode(),
        layout.IDENTITY_SIG: IDENTITY.signature_by(HUB),
        layout.KEY_MAP: cbor.dump([[key.key_id, key.hub_pk] for key in IDENTITY.hub_keys]),
        layout.CHECKPOINT_BINDING: b"",
    }
    for label, entries in history.entries.items():
        _lay_label(files, label, entries, cut)
    return files


def _lay_label(
    files: Files, label: bytes, entries: list[Framed], cut: Callable[[], int]
) -> None:  # fmt: skip
    peaks, refs, rest = mmr.EMPTY, {}, list(entries)
    while rest:
        size = cut()
        taken, rest = rest[:size], rest[size:]
        raw, tally = b"", Tally.starting_at(taken[0].seq)
        for one in taken:
            peaks = peaks.append(one.receipt.leaf_hash)
            raw += one.encode()
            entry = Entry(one.msg.encode(), one.receipt.encode())
            tally = tally.plus(len(one.encode()), entry.entry_hash())
        if not rest:
            files[layout.open_chunk(layout.OpenChunkName(label, taken[0].seq))] = raw
            break
        name = layout.ChunkName(label, taken[0].seq, peaks.size)
        files[layout.chunk(name)] = raw
        files[layout.summary(name)] = tally.summary(label, peaks.root()).encode()
        refs[peaks.size] = _lay_checkpoint(files, label, taken, peaks)
    if refs:
        files[layout.checkpoint_index(label)] = checkpoint_index.encode(refs)


def _lay_checkpoint(
    files: Files, label: bytes, taken: list[Framed], peaks: mmr.Peaks
) -> CheckpointRef:
    is_hourly = taken[0].msg.profile_id == HOURLY.profile_id()
    epoch = HOURLY.epoch(taken[0].receipt.hub_ts) if is_hourly else 0
    files[layout.peaks(label, peaks.size)] = PeakSnapshot.of(label, peaks).encode()
    made = Checkpoint(
        label_prev=label, label_curr=label, upto_seq=peaks.size, mmr_root=peaks.root(), epoch=epoch
    ).signed(HUB)
    files[layout.checkpoint(label, peaks.size)] = made.encode()
    files[layout.CHECKPOINT_BINDING] += CheckpointBinding(
        hub_id=IDENTITY.hub_id, key_id=IDENTITY.current.key_id, label=label, epoch=epoch,
        upto_seq=peaks.size, mmr_root=peaks.root(),
    ).encode()  # fmt: skip
    return CheckpointRef(
        mmr_root=peaks.root(), start_seq=taken[0].seq, end_seq=peaks.size,
        peaks_ref=layout.peaks(label, peaks.size),
    )  # fmt: skip


def forged(raw: bytes, edit: Callable[[list[Framed]], object]) -> bytes:
    """A chunk with its entries edited, each framed as if it were right."""
    entries = [
        Framed(header.label, header.stream_seq, entry.msg(), entry.receipt())
        for _, header, entry in read_entries(raw, LIMITS)
    ]
    edit(entries)
    return b"".join(one.encode() for one in entries)


def audited(
    files: Files,
    crew: Crew | None = None,
    depth: Depth = Depth.FULL,
    control_is_whole: bool = True,
) -> Report:
    trust = TrustCheck()
    hub = trust.read_hub(files.get)
    context = begin(hub=hub, limits=LIMITS, profiles=(HOURLY,), streams=STREAMS, depth=depth)
    stock = take_stock(one for one in files if one.startswith("log/"))
    log = Log(stock=stock, read=files.get, control_is_whole=control_is_whole)
    found = audit_log(log, context, crew or in_any_order(files, random.Random(1)))
    return found.report(trust.faults, trust.notes, ())


def in_any_order(files: Files, chance: random.Random) -> Crew:
    """Audits the chunks in an order of chance, none knowing what another found."""

    def run(tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        wanted = list(tasks)
        found = {}
        for place in chance.sample(range(len(wanted)), len(wanted)):
            found[place] = audit_task(wanted[place], files.get, context)
        return (found[place] for place in range(len(wanted)))

    return Crew(run, in_order(files.get).again)


@pytest.fixture(scope="session")
def tools() -> Any:
    """What tests of this folder use by name: they cannot import this file."""
    return SimpleNamespace(
        HOURLY=HOURLY, HUB=HUB, IDENTITY=IDENTITY, LIMITS=LIMITS, LONG=LONG, START=START,
        STREAMS=STREAMS, History=History, a_history=a_history, a_key=a_key, audited=audited,
        forged=forged, in_any_order=in_any_order, laid_out=laid_out, replace=replace,
    )  # fmt: skip


@pytest.fixture(scope="session")
def golden(tools: Any) -> Files:
    """A log with several chunks in each label; tests take copies of it."""
    return laid_out(a_history(random.Random(7), 90), lambda: 8)


@pytest.fixture
def files(golden: Files) -> Files:
    return dict(golden)
