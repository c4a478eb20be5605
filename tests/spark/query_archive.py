"""A hub with a random history in its archive and in an index, and the answers due to queries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import archived_hub
import poison
import query_histories
import query_oracle
import sealed_hub
from driven_hub import ISSUER, Bench

from hub.admission.verified import Verified
from recorder.index import checkpoints
from recorder.index.home import IndexHome
from recorder.index.reading import Reader
from recorder.index.rebuild import create
from recorder.index.writer import writing
from spark_jobs import event_work
from spark_jobs.query_run import Question, Site
from spark_jobs.signer import identity_in
from veen import captoken, json_body
from veen.chunk import read_entries
from veen.client.pair import Pair
from veen.control import StreamRecord
from veen.digest import h, ht
from veen.keystore.directory import ClientDir
from veen.limits import Limits
from veen.msg import Msg
from veen.objects.settings import StoreSettings
from veen.overlay.body import AnyItem
from veen.payload import PayloadHdr
from veen.profile import DEFAULT_PROFILE
from veen.record_event import SCHEMA, RecordEvent
from veen.seal import Place, seal
from veen.sign import PrivateKey

EMPTY = "record/zz-empty"
STREAMS = (*query_histories.STREAMS, EMPTY)
CHUNK = 7
"""Entries in a chunk: no power of two, so that the nodes of the range cross its ends."""
KEYS = {
    query_histories.principal(n): PrivateKey(query_histories.principal_seed(n)) for n in (1, 2, 3)
}
RESULT = "r-{}"


def as_event(made: Any) -> RecordEvent:
    return RecordEvent(
        subject_id=made.subject_id,
        principal_id=bytes.fromhex(made.principal_id),
        event_type=made.event_type,
        event_time=made.event_time,
        origin=made.origin,
        payload=AnyItem(json_body.encode(json.dumps(made.payload, ensure_ascii=False))),
    )


class Sender:
    """Writes a history to a hub that a test drives by hand."""

    def __init__(self, bench: Bench, reader: Path) -> None:
        self.bench = bench
        self.streams = {one: StreamRecord(name=one, profile=DEFAULT_PROFILE) for one in STREAMS}
        self._recipient = ClientDir(reader).read_card().prekeys[0].prekey
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        for stream in self.streams.values():
            bench.committer.register(stream, bench.now)
        self._tokens = {name: self._token(key) for name, key in KEYS.items()}

    def send(self, made: Any) -> str:
        """The leaf of one message; what is no event has another schema, or is for a stranger."""
        self.bench.now = max(self.bench.now, made.hub_ts)
        client, label = KEYS[made.principal_id], self.label(made.stream)
        number = self._numbers.get((label, client.public), 0) + 1
        self._numbers[label, client.public] = number
        place = Place(
            profile=DEFAULT_PROFILE, label=label, client_id=client.public, client_seq=number,
            prev_ack=0, auth_ref=self._tokens[made.principal_id].auth_ref(),
        )  # fmt: skip
        is_strange = not made.is_event and made.seq % 2
        sealed = (
            poison.unopenable(number, place, self._recipient)
            if is_strange
            else seal(
                recipient=self._recipient,
                ephemeral=ht("tests/ephemeral", label, client.public, number.to_bytes(4, "big")),
                place=place,
                header=PayloadHdr(schema=SCHEMA if made.is_event else h(b"another")),
                body=as_event(made).encode(),
                limits=self.bench.limits,
            ).ciphertext
        )
        msg = Msg(
            profile_id=DEFAULT_PROFILE.profile_id(), label=label, client_id=client.public,
            client_seq=number, prev_ack=0, auth_ref=place.auth_ref,
            ct_hash=h(sealed), ciphertext=sealed,
        ).signed(client)  # fmt: skip
        (done,) = self.bench.committer.commit([Verified.of(msg)], made.hub_ts)
        assert isinstance(done, bytes), done
        return msg.leaf_hash().hex()

    def label(self, stream: str) -> bytes:
        found: bytes = self.bench.label(self.streams[stream])
        return found

    def checkpoint(self) -> Any:
        committer, now = self.bench.committer, self.bench.now
        for stream in STREAMS:
            known = committer.log.label(self.label(stream))
            if known is not None and known.head_seq:
                committer.checkpoint(self.label(stream), known.head_seq, now)
        return committer.recorder_checkpoint(h(b"a recorder's profile"), now, force=True)

    def _token(self, client: PrivateKey) -> Any:
        token = captoken.issue(
            ISSUER, subject_pk=client.public, ttl=10**9, rate=None,
            stream_ids=[one.stream_id() for one in self.streams.values()],
        )  # fmt: skip
        self.bench.committer.authorize(token, self.bench.now)
        return token


@dataclass
class World:
    """A stopped hub, two of its recorder checkpoints, and who may read it.

    ``made`` is what the oracle is told. It goes up to ``checkpoint``, the log goes on.
    """

    root: Path
    client: Path
    hub: Any
    hub_key: PrivateKey
    early: Any
    checkpoint: Any
    made: list[dict[str, Any]]
    labels: dict[str, bytes]
    index: IndexHome | None = None

    def site(self, archived: Any) -> Site:
        reader = event_work.Reader(self.client, self.client.with_suffix(".passphrase"))
        return Site(archived.door, archived.hub_id, reader)

    def archived(self, settings: StoreSettings) -> Any:
        return archived_hub.archived(self.root, settings)

    def archived_early(self, settings: StoreSettings) -> Any:
        """The archive of the same hub, pushed when it had got to the early checkpoint."""
        return archived_hub.archived(self.root.with_name("early"), settings)

    def files(self, stream: str) -> list[str]:
        """The sealed chunks of a stream, and then its open one."""
        found = (self.root / "log").glob(f"chunk-{self.labels[stream].hex()}-*")
        names = sorted(one.name for one in found if one.suffix in (".log", ".open"))
        return [f"log/{one}" for one in names]

    def pairs(self, stream: str) -> Iterator[Pair]:
        for name in self.files(stream):
            for _, _, entry in read_entries((self.root / name).read_bytes(), Limits()):
                yield Pair(entry.msg(), entry.receipt())

    def make_index(self, home: Path) -> None:
        """The index of the same log, as the follower writes it."""
        keys = identity_in(self.client, self.client.with_suffix(".passphrase")).readers()
        self.index = IndexHome(home)
        reader = Reader(keys, Limits())
        with (
            self.index.locked(),
            writing(create(self.index, self.hub.hub_id)) as writer,
        ):
            for stream in STREAMS:
                pairs = list(self.pairs(stream))
                read = [reader.read(one.msg.encode()) for one in pairs]
                row = writer.stream(stream)
                if pairs:
                    writer.append(row, pairs, read)
            for one in (self.early, self.checkpoint):
                writer.db.execute(
                    "INSERT INTO checkpoints (checkpoint_id, created_at, document) "
                    "VALUES (?, ?, ?)",
                    (one.checkpoint_id, one.created_at, one.encode()),
                )
            checkpoints.check(writer)


def a_world(folder: Path, seed: int, size: int) -> World:
    sealed_hub.a_reader(folder / "reader")
    bench = Bench(folder / "hub", limits=Limits(max_checkpoint_interval=CHUNK))
    sender = Sender(bench, folder / "reader")
    made = []
    for number, one in enumerate(query_histories.history(seed, size + size // 8)):
        if number == size // 3:
            early = sender.checkpoint()
            bench.stop()
            shutil.copytree(folder / "hub", folder / "early")
            bench.start()
        if number == size:
            checkpoint = sender.checkpoint()
        leaf = sender.send(one)
        if number < size:
            made.append(one.plain() | {"leaf_hash": leaf})
    keys = bench.committer.log.keys
    labels = {stream: sender.label(stream) for stream in STREAMS}
    bench.stop()
    return World(
        folder / "hub", folder / "reader", keys.identity, keys.current, early, checkpoint, made,
        labels,
    )  # fmt: skip


def questions_of(descriptors: Sequence[Any], out: Path) -> list[Question]:
    return [
        Question(one, RESULT.format(number), out / str(number))
        for number, one in enumerate(descriptors)
    ]


def due(world: World, query: dict[str, Any], result_id: str) -> dict[str, Any]:
    """Everything that the query must give, found in the most obvious way."""
    rows = query_oracle.answer(query, world.made)
    matching = query_oracle.matching(query, world.made)
    return {
        "rows": [query_oracle.jcs(one).encode() for one in rows],
        "row_count": len(rows),
        "event_count": len(matching),
        "rows_hash": query_oracle.digest(rows),
        "evidence_hash": query_oracle.digest(_evidence(world, query, matching, result_id)),
        "searched": [_searched(world, query, one) for one in sorted(query["scope"], key=_utf8)],
    }


def _evidence(
    world: World, query: dict[str, Any], matching: list[Any], result_id: str
) -> dict[str, Any]:
    policy, log_root = query["evidence"], world.checkpoint.log_root
    mode = policy["mode"]
    if mode == "none":
        return {"mode": "none"}
    rate = 1.0 if mode == "full" else policy["sample_rate"]
    drawn = [
        event
        for index, event in enumerate(matching)
        if query_oracle.sampled(query["query_id"], log_root, rate, index)
    ]
    told = {"query_id": query["query_id"], "result_id": result_id, "mode": mode}
    if mode == "spot":
        told["sample_rate"] = float(rate)
    told["verified"] = [
        {
            "receipt_id": "rcpt-" + one["leaf_hash"],
            "mmr_root": world.checkpoint.end(one["stream"]).mmr_root.hex(),
            "hub_id": world.hub.hub_id.hex(),
        }
        for one in drawn
    ]
    return told


def _searched(world: World, query: dict[str, Any], stream: str) -> dict[str, Any]:
    own = [one for one in world.made if one["stream"] == stream]
    time = query["filter"].get("time") or {}
    start, end = (time.get(name) and query_oracle.to_ms(time[name]) for name in ("from", "to"))
    early = [start is not None and one["hub_ts"] * 1000 < start for one in own]
    late = [end is not None and one["hub_ts"] * 1000 > end for one in own]
    inside = [one for one, *out in zip(own, early, late, strict=True) if not any(out)]
    return {
        "stream": stream,
        "from_seq": sum(early) + 1,
        "to_seq": len(own) - sum(late),
        "mmr_root": world.checkpoint.end(stream).mmr_root.hex(),
        "unread": sum(not one["is_event"] for one in inside),
    }


def _utf8(text: str) -> bytes:
    return text.encode()
