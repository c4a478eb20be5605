"""Recorder steps: streams, principals and order (SDR0 3.2), checkpoints and anchors (3.2.4)."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cli.selftest.recorder_data import a_zone, fields_of, leaves_of, record, some_events, streams_of
from cli.selftest.samples import SelftestStep, expect, expect_raises, expect_that, naive_root
from cli.selftest.world import World
from cli.selftest.zones import SelftestZone
from recorder.anchor.anchors import verify_anchors
from recorder.checkpoints.checkpoints import verify_chain, verify_next, verify_on_hub
from recorder.emit.emitter import NoEvent
from recorder.replay.job import Job
from recorder.replay.output import form_named
from recorder.replay.plan import HubSource, by_time
from recorder.settings import load
from recorder.stream_map import UnknownType
from veen.client.client import Client
from veen.client.transport import HubRefused
from veen.crypto import SigningKey
from veen.digest import ht, u64be
from veen.errors import Code, Untrusted
from veen.events import RECORD_SCHEMA, EventFault, NotAnEvent, RecordEvent, read_event
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.config import BadSettings
from veen.wire import cbor
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

_EVENT_COUNT: Final = 12
_PROOF_COUNT: Final = 9
_LINE: Final = ("previous", "index", "root", "epoch", "ts", "nonce")


def emit_by_type(world: World) -> None:
    """Events sent one by one, in batches and through the outbox reach the stream of their type."""
    zone = a_zone(world)
    observed = some_events(zone, _EVENT_COUNT)
    with zone.emitter() as emitter:
        emitter.send(observed[0])
        emitter.emit_many(observed[1:5])
        expect("kept in the outbox", emitter.pending(), 4)
        expect("acknowledged", emitter.flush().acknowledged, 4)
        expect("receipts", len(list(emitter.send_many(observed[5:]))), _EVENT_COUNT - 5)
        unknown = replace(observed[0], event_type="nobody.knows")
        expect_raises("an unknown type", UnknownType, emitter.send, unknown)
        large = replace(observed[0], payload="x" * 70_000)
        expect_raises("a payload beyond the bound", NoEvent, emitter.send, large)
    with zone.acting() as reader:
        for stream, types in streams_of(world.step).items():
            due = [
                fields_of(observation)
                for observation in observed
                if observation.event_type in types
            ]
            expect(
                f"the events of {stream}", [_fields(item) for item in _read(reader, stream)], due
            )


def separation(world: World) -> None:
    """Settings and hub refuse an admin as producer, and a producer as admin."""
    zone = a_zone(world)
    orders, services = zone.names
    doubled = {orders: ("order.placed",), services: ("order.placed",)}
    expect_raises("a type of two streams", BadSettings, _load, zone, zone.text(doubled))
    both = zone.text({orders: ("order.placed",)}, producer="admin")
    expect_raises("an admin that produces", BadSettings, _load, zone, both)
    with zone.emitter("admin") as emitter:
        observed = some_events(zone, 1)[0]
        expect_raises("an event by an admin", NoEvent, emitter.send, observed)
    token = zone.token("admin", zone.names)
    _expect_refused(Code.FORBIDDEN, world.api().authorize, token)
    (item,) = record(zone, some_events(zone, 1))
    with zone.acting("producer") as producer:
        api = producer.session.api
        _expect_refused(Code.FORBIDDEN, api.recorder_checkpoint, zone.settings.profile_id())
        _expect_refused(Code.FORBIDDEN, lambda: list(producer.read(item.stream)))


def principal(world: World) -> None:
    """An event whose principal is not its signing client is refused (I3)."""
    zone = a_zone(world)
    (honest,) = record(zone, some_events(zone, 1))
    forged = RecordEvent(
        subject_id="user:1",
        principal_id=world.people["admin"],
        event_type="order.placed",
        event_time=1,
        origin="gate-1",
        payload=AnyItem(value_to_cbor({})),
    )
    with zone.acting("producer") as producer, zone.acting() as reader:
        producer.renew(zone.token("producer", zone.names))
        key = reader.session.identity.card.id_dh
        producer.send(honest.stream, forged.encode(), schema=RECORD_SCHEMA, recipient=key)
        first, second = reader.read(honest.stream)
        expect("the signer", first.msg.client_id, world.people["producer"])
        opened = reader.open_payload(first.msg)
        event = read_event(opened.header.schema, opened.body, first.msg.client_id)
        expect("principal_id", event.principal_id, world.people["producer"])
        opened = reader.open_payload(second.msg)
        error = expect_raises(
            "another's principal_id", NotAnEvent, read_event,
            opened.header.schema, opened.body, second.msg.client_id,
        )  # fmt: skip
    expect("the fault", getattr(error, "fault", None), EventFault.PRINCIPAL)


def order(world: World) -> None:
    """stream_seq without gaps, monotonic hub time, and one total order over streams (I1)."""
    zone = a_zone(world)
    recorded = record(zone, some_events(zone, _EVENT_COUNT))
    for stream in zone.names:
        mine = [item for item in recorded if item.stream == stream]
        expect(f"places of {stream}", [item.seq for item in mine], list(range(1, len(mine) + 1)))
        times = [item.hub_ts for item in mine]
        expect_that(times == sorted(times), f"hub time never goes back in {stream}")
    with zone.acting() as reader:
        checkpoint = zone.checkpoint(reader).checkpoint
        order_ = []
        for name in ("first", "second"):
            job = Job(
                source=HubSource(reader),
                requested=lambda _: by_time(zone.names, None, int(time.time() + 60) * 1_000),
                latest=lambda: checkpoint,
            )
            out = zone.folder / name
            job.to_file(out, form_named("jsonl"), resume=False)
            order_.append(events_in(out))
    places = [(item["stream"], item["hub_commit_seq"]) for item in order_[0]]
    due = [(item.stream, item.seq) for item in sorted(recorded, key=lambda item: item.order)]
    expect("the order of a replay", places, due)
    expect("the order of another", order_[1], order_[0])


def events_in(path: Path) -> list[dict[str, Any]]:
    """The events of a replay output, without the plan and the proofs."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [item for item in lines if item["kind"] in ("event", "other")]


def _read(reader: Client, stream: str) -> list[RecordEvent]:
    events = []
    for pair in reader.read(stream):
        opened = reader.open_payload(pair.msg)
        events.append(read_event(opened.header.schema, opened.body, pair.msg.client_id))
    return events


def _fields(event: RecordEvent) -> dict[str, Any]:
    return {
        "subject_id": event.subject_id,
        "event_type": event.event_type,
        "event_time": event.event_time,
        "origin": event.origin,
        "payload": event.value(),
    }


def _load(zone: SelftestZone, text: str) -> object:
    path = zone.folder / "other.toml"
    path.write_text(text)
    return load(path)


def _expect_refused(code: Code, call: Any, *given: Any) -> None:
    error = expect_raises("what the policy forbids", HubRefused, call, *given)
    expect("the refusal", getattr(error, "code", None), code.value)


EVENT_STEPS: Final = (
    SelftestStep("emit-by-type", emit_by_type),
    SelftestStep("separation", separation),
    SelftestStep("principal", principal),
    SelftestStep("order", order),
)


def checkpoint(world: World) -> None:
    """A checkpoint matches the log and extends the last one; a changed one is refused."""
    zone = a_zone(world)
    recorded = record(zone, some_events(zone, _PROOF_COUNT))
    with zone.acting() as admin:
        first = zone.checkpoint(admin)
        expect("the first is new", first.is_new, True)
        expect("the next without news", zone.checkpoint(admin).is_new, False)
        document = first.checkpoint
        for stream in zone.names:
            leaves, end = leaves_of(recorded, stream), document.end(stream)
            detail = (end.last_seq, end.mmr_root) if end else None
            expect(f"the end of {stream}", detail, (len(leaves), naive_root(leaves)))
        ends = [[end.stream_id, end.last_seq, end.mmr_root] for end in document.ends]
        expect("log_root", document.log_root, ht("veen/log-root", cbor.dump(ends)))
        more = record(zone, some_events(zone, 2))
        second = zone.checkpoint(admin).checkpoint
        held = {held.name: held.head_seq for held in verify_on_hub(admin.meet(), document)}
        for item in more:
            expect(f"what the hub holds of {item.stream}", held[item.stream] >= item.seq, True)
        hub = admin.meet().hub
        expect("kept in order", verify_chain((document, second), hub), 2)
    _refuse_altered(world, document, lambda item: verify_next(item, None, hub))
    expect_raises("one that goes back", Untrusted, verify_next, document, second, hub)


def _refuse_altered(world: World, document: RecorderCheckpoint, verify: Any) -> None:
    for what, altered in (
        ("another time", replace(document, created_at=document.created_at + 1)),
        ("another profile", replace(document, profile_id=world.random.randbytes(32))),
        ("another signature", replace(document, hub_sig=world.random.randbytes(64))),
        ("another signer", document.signed(SigningKey(world.random.randbytes(32)))),
    ):
        expect_raises(f"a checkpoint with {what}", Untrusted, verify, altered)


def anchor(world: World) -> None:
    """The root is in a tamper-evident ledger, and the anchor alone locates it."""
    zone = a_zone(world)
    scheduler, now, result = zone.services().anchor_scheduler(), int(time.time()), []
    for count in (1, 2):
        record(zone, some_events(zone, count))
        document = zone.checkpoint_now()
        name = zone.services().checkpoint_store().names()[-1]
        outcome = scheduler.do(scheduler.ask(name, now), now)
        if outcome.ref is None:
            raise outcome.error or Untrusted("no anchor, and no error either")
        result.append((document, outcome.ref.anchor_ref))
    expect("anchored", (scheduler.status(now).anchored, scheduler.status(now).waiting), (2, 0))
    (first, early), (last, late) = result
    ledger = zone.services().anchor()
    for document, ref in result:
        proven = verify_anchors(ledger, document, ref)
        expect("the root that is proven", proven.root, document.log_root)
    expect_raises("the anchor of another", Untrusted, verify_anchors, ledger, first, late)
    expect_raises("another root", Untrusted, ledger.verify, world.random.randbytes(32), early)
    path = zone.settings.anchor.path
    if path is None:
        raise Untrusted("the settings name no ledger")
    lines = path.read_text().splitlines()
    _expect_chained([json.loads(line) for line in lines], last)
    altered = json.loads(lines[1])
    altered["ts"] += 1
    changed = json.dumps(altered, sort_keys=True, separators=(",", ":"))
    for what, others in (
        ("a changed entry", [lines[0], changed, lines[2]]),
        ("a missing entry", [lines[0], lines[2]]),
        ("a cut ledger", lines[:2]),
    ):
        path.write_text("".join(f"{line}\n" for line in others))
        expect_raises(what, Untrusted, verify_anchors, ledger, last, late)
    path.write_text("".join(f"{line}\n" for line in lines))
    verify_anchors(ledger, last, late)


def _expect_chained(entries: list[dict[str, Any]], last: RecorderCheckpoint) -> None:
    """Expect the hash chain of the ledger, recomputed from its documented format."""
    before = bytes(32).hex()
    for entry in entries:
        expect("what an entry follows", entry["previous"], before)
        parts = [
            bytes.fromhex(entry[name]) if isinstance(entry[name], str) else u64be(entry[name])
            for name in _LINE
        ]
        expect("the hash of an entry", entry["hash"], ht("veen/anchor-ledger", *parts).hex())
        before = entry["hash"]
    expect("the last root", entries[-1]["root"], last.log_root.hex())


PROOF_STEPS: Final = (SelftestStep("checkpoint", checkpoint), SelftestStep("anchor", anchor))
