"""A hub with a random history in its archive and in an index, and the answers due to queries."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub.admission import VerifiedMsg
from recorder.index.proofs import check_checkpoint
from recorder.index.rebuild import create
from recorder.index.tables import IndexHome
from recorder.index.writer import EntryReader, writing
from spark_jobs.event_files import ReaderIdentity
from spark_jobs.query_digest import QuerySite, SparkQuestion
from spark_jobs.session import identity_in
from support import poison
from support.hub.driven_hub import ISSUER, Bench
from support.recorder import query_histories, query_oracle
from support.recorder.recorded_log import as_event
from support.spark import archived_hub, sealed_hub
from veen import captoken
from veen.client.log_head import Pair
from veen.crypto import SigningKey
from veen.digest import h, ht
from veen.events import RECORD_SCHEMA
from veen.keystore.directory import ClientDir
from veen.label import DEFAULT_PROFILE
from veen.limits import Limits
from veen.log.chunk import read_entries
from veen.log.entry import StreamRecord
from veen.msg import Msg
from veen.objects.port import StoreSettings
from veen.payload import PayloadHdr, SealPlace, seal_payload

EMPTY = "record/zz-empty"
STREAMS = (*query_histories.STREAMS, EMPTY)
CHUNK = 7
"""Entries in a chunk: no power of two, so that the nodes of the range cross its ends."""
KEYS = {
    query_histories.principal(n): SigningKey(query_histories.principal_seed(n)) for n in (1, 2, 3)
}
RESULT = "r-{}"


class Sender:
    """Writes a history to a hub that a test drives by hand."""

    def __init__(self, bench: Bench, reader: Path) -> None:
        self.bench = bench
        self.streams = {item: StreamRecord(name=item, profile=DEFAULT_PROFILE) for item in STREAMS}
        self._recipient = ClientDir(reader).read_card().prekeys[0].prekey
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        for stream in self.streams.values():
            bench.committer.register(stream, bench.now)
        self._tokens = {name: self._token(key) for name, key in KEYS.items()}

    def send(self, item: Any) -> str:
        """The leaf of one message; what is no event has another schema, or is for a message."""
        self.bench.now = max(self.bench.now, item.hub_ts)
        client, label = KEYS[item.principal_id], self.label(item.stream)
        number = self._numbers.get((label, client.public), 0) + 1
        self._numbers[label, client.public] = number
        place = SealPlace(
            profile=DEFAULT_PROFILE, label=label, client_id=client.public, client_seq=number,
            prev_ack=0, auth_ref=self._tokens[item.principal_id].auth_ref(),
        )  # fmt: skip
        is_strange = not item.is_event and item.seq % 2
        sealed = (
            poison.unopenable(number, place, self._recipient)
            if is_strange
            else seal_payload(
                recipient=self._recipient,
                ephemeral=ht("tests/ephemeral", label, client.public, number.to_bytes(4, "big")),
                place=place,
                header=PayloadHdr(schema=RECORD_SCHEMA if item.is_event else h(b"another")),
                body=as_event(item).encode(),
                limits=self.bench.limits,
            ).ciphertext
        )
        msg = Msg(
            profile_id=DEFAULT_PROFILE.profile_id(), label=label, client_id=client.public,
            client_seq=number, prev_ack=0, auth_ref=place.auth_ref,
            ct_hash=h(sealed), ciphertext=sealed,
        ).signed(client)  # fmt: skip
        (done,) = self.bench.committer.commit([VerifiedMsg.of(msg)], item.hub_ts)
        assert isinstance(done, bytes), done
        return msg.leaf_hash().hex()

    def label(self, stream: str) -> bytes:
        result: bytes = self.bench.label(self.streams[stream])
        return result

    def checkpoint(self) -> Any:
        committer, now = self.bench.committer, self.bench.now
        for stream in STREAMS:
            known = committer.log.label(self.label(stream))
            if known is not None and known.head_seq:
                committer.checkpoint(self.label(stream), known.head_seq, now)
        return committer.recorder_checkpoint(h(b"a recorder's profile"), now, force=True)

    def _token(self, client: SigningKey) -> Any:
        token = captoken.issue(
            ISSUER, subject_pk=client.public, ttl=10**9, rate=None,
            stream_ids=[stream.stream_id() for stream in self.streams.values()],
        )  # fmt: skip
        self.bench.committer.authorize(token, self.bench.now)
        return token


@dataclass
class World:
    """A stopped hub, two of its recorder checkpoints, and who may read it.

    ``plain_items`` is what the oracle reads. It goes up to ``checkpoint``, the log goes on.
    """

    root: Path
    client: Path
    hub: Any
    hub_key: SigningKey
    early: Any
    checkpoint: Any
    plain_items: list[dict[str, Any]]
    labels: dict[str, bytes]
    index: IndexHome | None = None

    def site(self, archived: Any) -> QuerySite:
        reader = ReaderIdentity(self.client, self.client.with_suffix(".passphrase"))
        return QuerySite(archived.services, archived.hub_id, reader)

    def archived(self, settings: StoreSettings) -> Any:
        return archived_hub.archived(self.root, settings)

    def archived_early(self, settings: StoreSettings) -> Any:
        """The archive of the same hub, pushed when it had got to the early checkpoint."""
        return archived_hub.archived(self.root.with_name("early"), settings)

    def files(self, stream: str) -> list[str]:
        """The sealed chunks of a stream, and then its open one."""
        result = (self.root / "log").glob(f"chunk-{self.labels[stream].hex()}-*")
        names = sorted(item.name for item in result if item.suffix in (".log", ".open"))
        return [f"log/{name}" for name in names]

    def pairs(self, stream: str) -> Iterator[Pair]:
        for name in self.files(stream):
            for _, _, entry in read_entries((self.root / name).read_bytes(), Limits()):
                yield Pair(entry.msg(), entry.receipt())

    def make_index(self, home: Path) -> None:
        """The index of the same log, as the follower writes it."""
        keys = identity_in(self.client, self.client.with_suffix(".passphrase")).readers()
        self.index = IndexHome(home)
        reader = EntryReader(keys, Limits())
        with (
            self.index.locked(),
            writing(create(self.index, self.hub.hub_id)) as writer,
        ):
            for stream in STREAMS:
                pairs = list(self.pairs(stream))
                read = [reader.read(pair.msg.encode()) for pair in pairs]
                row = writer.stream(stream)
                if pairs:
                    writer.append(row, pairs, read)
            for item in (self.early, self.checkpoint):
                writer.db.execute(
                    "INSERT INTO checkpoints (checkpoint_id, created_at, document) "
                    "VALUES (?, ?, ?)",
                    (item.checkpoint_id, item.created_at, item.encode()),
                )
            check_checkpoint(writer)


def a_world(folder: Path, seed: int, size: int) -> World:
    sealed_hub.a_reader(folder / "reader")
    bench = Bench(folder / "hub", limits=Limits(max_checkpoint_interval=CHUNK))
    sender = Sender(bench, folder / "reader")
    items = []
    for number, item in enumerate(query_histories.history(seed, size + size // 8)):
        if number == size // 3:
            early = sender.checkpoint()
            bench.stop()
            shutil.copytree(folder / "hub", folder / "early")
            bench.start()
        if number == size:
            checkpoint = sender.checkpoint()
        leaf = sender.send(item)
        if number < size:
            items.append(item.plain() | {"leaf_hash": leaf})
    keys = bench.committer.log.keys
    labels = {stream: sender.label(stream) for stream in STREAMS}
    bench.stop()
    return World(
        folder / "hub", folder / "reader", keys.identity, keys.current, early, checkpoint, items,
        labels,
    )  # fmt: skip


def questions_of(descriptors: Sequence[Any], out: Path) -> list[SparkQuestion]:
    return [
        SparkQuestion(descriptor, RESULT.format(number), out / str(number))
        for number, descriptor in enumerate(descriptors)
    ]


def due(world: World, query: dict[str, Any], result_id: str) -> dict[str, Any]:
    """Everything that the query must give, found in the most obvious way."""
    rows = query_oracle.answer(query, world.plain_items)
    matching = query_oracle.matching(query, world.plain_items)
    return {
        "rows": [query_oracle.jcs(row).encode() for row in rows],
        "row_count": len(rows),
        "event_count": len(matching),
        "rows_hash": query_oracle.digest(rows),
        "evidence_hash": query_oracle.digest(_evidence(world, query, matching, result_id)),
        "searched": [_searched(world, query, item) for item in sorted(query["scope"], key=_utf8)],
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
    detail = {"query_id": query["query_id"], "result_id": result_id, "mode": mode}
    if mode == "spot":
        detail["sample_rate"] = float(rate)
    detail["verified"] = [
        {
            "receipt_id": "rcpt-" + item["leaf_hash"],
            "mmr_root": world.checkpoint.end(item["stream"]).mmr_root.hex(),
            "hub_id": world.hub.hub_id.hex(),
        }
        for item in drawn
    ]
    return detail


def _searched(world: World, query: dict[str, Any], stream: str) -> dict[str, Any]:
    own = [item for item in world.plain_items if item["stream"] == stream]
    time = query["filter"].get("time") or {}
    start, end = (time.get(name) and query_oracle.to_ms(time[name]) for name in ("from", "to"))
    early = [start is not None and item["hub_ts"] * 1000 < start for item in own]
    late = [end is not None and item["hub_ts"] * 1000 > end for item in own]
    inside = [item for item, *out in zip(own, early, late, strict=True) if not any(out)]
    return {
        "stream": stream,
        "from_seq": sum(early) + 1,
        "to_seq": len(own) - sum(late),
        "mmr_root": world.checkpoint.end(stream).mmr_root.hex(),
        "unread": sum(not item["is_event"] for item in inside),
    }


def _utf8(text: str) -> bytes:
    return text.encode()
