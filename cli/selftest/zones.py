"""Two zones of the bridge suite, new for each step, and recorders at the hub of a self-test."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from bridge.audit_log import AuditEvent, AuditWriter, read_log
from bridge.carrier.verify import VerifyContext
from bridge.connect import open_bridge_client
from bridge.exporter.build import BodyOpener
from bridge.exporter.deliver import Media
from bridge.exporter.gaps import ExportGap
from bridge.exporter.run import ExportedCarrier, ExportSetup, opened
from bridge.importer.outcome import ImportOutcome
from bridge.importer.run import ImportRequest, run_import
from bridge.prove.imports import Completions, read_completions
from bridge.reconcile.collect import Carried, Collected, Listener, NullCollector, collect_offline
from bridge.settings import BridgeSettings, IdentitySettings, parse
from bridge.stream_map import IMPORTS, OFFLINE_LOG, ONLINE_LOG
from bridge.trust import TrustStore, pin_exporter, pin_hub
from cli.selftest.samples import expect
from cli.selftest.world import HubUnderTest, World
from recorder.checkpoints.checkpoints import CheckpointCreated, create_checkpoint
from recorder.checkpoints.schedule import RecorderServices
from recorder.connect import open_recorder_client, reader_key
from recorder.emit.emitter import Emitter
from recorder.settings import RecorderSettings, load
from recorder.stream_map import REQUESTS, RESULTS
from veen import captoken
from veen.captoken import CapToken
from veen.client.checkpoints import create_recorder_checkpoint
from veen.client.client import Client
from veen.client.hub_api import HubApi
from veen.client.transport import RetryPolicy, Transport
from veen.crypto import SigningKey
from veen.digest import h
from veen.events import IMPORT_SCHEMA, RECORD_SCHEMA, ImportedEvent, RecordEvent, read_imported
from veen.keystore.directory import ClientDir
from veen.label import stream_id
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.config import HubConfig
from veen.system.environment import Runtime
from veen.system.signals import signals_unwind
from veen.wire.api import RegisterRequest, StreamsResponse
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

ORDERS: Final = "record/app/orders"
IMPORTED: Final = f"import/{ORDERS}"
QUERIES: Final = (REQUESTS, RESULTS)
"""Descriptors and digests of queries, which travel like any events (Query API 9.1)."""
SOURCES: Final = (ORDERS, *QUERIES)
IMPORTED_QUERIES: Final = tuple(f"import/{item}" for item in QUERIES)
IMPORTED_LOG: Final = f"import/{ONLINE_LOG}"
_DAY_SEC: Final = 86_400
OPERATOR: Final = "self-test"
BUNDLE_EVENTS: Final = 2
_START_MS: Final = 1_763_500_000_000
_PROFILE: Final = h(b"profile of a self-test")
_HOUR_SEC: Final = 3_600


class SidePerson(NamedTuple):
    """A principal of a zone, with the streams it may read and write."""

    role: str | None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


ONLINE: Final = {
    "admin": SidePerson("recorder_admin", reads=("*",)),
    "producer": SidePerson(None, writes=(ORDERS,)),
    "query": SidePerson("query", reads=("record/*",), writes=QUERIES),
    "bridge": SidePerson("bridge_online", reads=(*SOURCES, ONLINE_LOG)),
    "audit": SidePerson("audit_writer", writes=(ONLINE_LOG,)),
}
OFFLINE: Final = {
    "reader": SidePerson("recorder_admin", reads=("*",)),
    "bridge": SidePerson("bridge_offline", writes=(IMPORTED, *IMPORTED_QUERIES, IMPORTED_LOG)),
    "audit": SidePerson("audit_writer", writes=(OFFLINE_LOG,)),
    "import-recorder": SidePerson("recorder_producer", writes=(IMPORTS,)),
}


class BridgeSide:
    """A zone of the bridge world; its hub runs from ``start`` to ``end``."""

    def __init__(
        self,
        root: Path,
        people: Mapping[str, SidePerson],
        chance: random.Random,
        environment: Mapping[str, str],
        timeout_sec: float,
    ) -> None:
        root.mkdir()
        self.root = root
        self.people = people
        self.retry_policy = RetryPolicy(timeout_sec=timeout_sec)
        self._chance = chance
        self._issuer = SigningKey(chance.randbytes(32))
        self.keys = {name: self._identity(name) for name in people}
        self.hub = HubUnderTest(root, self._hub_settings(), environment)

    def start(self) -> None:
        """Start the hub, and authorize its writers."""
        self.hub.start()
        with closing(
            Transport(self.hub.url, runtime=self.runtime(), retry_policy=self.retry_policy)
        ) as transport:
            api = HubApi(transport)
            self.identity = api.status().identity()
            self.identity_sig = api.status().identity_sig
        for name, person in self.people.items():
            if person.writes:
                token = self.grant(self.keys[name], *person.writes)
                (self.root / f"{name}.cap").write_bytes(token.encode())

    def grant(self, subject: bytes, *streams: str) -> captoken.CapToken:
        """Issue and authorize a capability for a key."""
        token = captoken.issue(
            self._issuer,
            subject_pk=subject,
            stream_ids=[stream_id(stream) for stream in streams],
            ttl=_DAY_SEC,
        )
        with closing(
            Transport(self.hub.url, runtime=self.runtime(), retry_policy=self.retry_policy)
        ) as transport:
            HubApi(transport).authorize(token)
        return token

    def identity_document(self, name: str) -> dict[str, Any]:
        """An identity as a table of the settings."""
        table = {"client": name}
        if self.people[name].role is not None:
            table["principal"] = name
        if self.people[name].writes:
            table["capability"] = f"{name}.cap"
        return table

    def settings(self, document: dict[str, Any]) -> BridgeSettings:
        """The settings of the bridge; hub and identities are the same for every document."""
        usual: dict[str, Any] = {
            "hub": {"url": self.hub.url, "hub_id": self.identity.hub_id.hex()},
            "bridge": self.identity_document("bridge"),
            "audit": self.identity_document("audit"),
        }
        for name, item in document.items():
            usual[name] = {**usual.get(name, {}), **item} if isinstance(item, dict) else item
        return parse(usual, self.root)

    @contextmanager
    def acting(self, name: str) -> Iterator[Client]:
        detail = self.identity_document(name)
        identity = IdentitySettings(
            client=self.root / name,
            passphrase_file=None,
            principal=detail.get("principal"),
            capability=self.root / f"{name}.cap" if self.people[name].writes else None,
        )
        hub = HubConfig(url=self.hub.url, hub_id=self.identity.hub_id, ca=None)
        with open_bridge_client(
            hub, identity, runtime=self.runtime(), retry_policy=self.retry_policy
        ) as client:
            client.meet()
            yield client

    def recipient(self, name: str) -> bytes:
        return ClientDir(self.root / name).read_card().recipient(int(time.time()))

    def runtime(self) -> Runtime:
        return Runtime(
            clock=lambda: int(time.time()), random=self._chance.randbytes, sleep=time.sleep
        )

    def _identity(self, name: str) -> bytes:
        made = ClientDir(self.root / name).create(
            now=int(time.time()), random=self._chance.randbytes, passphrase=None
        )
        return made.client_id

    def _hub_settings(self) -> str:
        streams = {write for person in self.people.values() for write in person.writes}
        lines = ["workers = 1", f'issuers = ["{self._issuer.public.hex()}"]']
        for stream in sorted(streams):
            lines += ["[[streams]]", f'name = "{stream}"']
        for name, item in self.people.items():
            if item.role is not None:
                lines += ["[[principals]]", f'name = "{name}"', f'role = "{item.role}"']
                lines += [f"read = {json.dumps(item.reads)}", f"write = {json.dumps(item.writes)}"]
                lines += [f'public_key = "{self.keys[name].hex()}"']
        return "\n".join(lines)


class BridgeWorld:
    """Two zones; ``recorded`` has the events of Z1 in order, and media are directories."""

    def __init__(
        self, root: Path, seed: int, timeout_sec: float, environment: Mapping[str, str]
    ) -> None:
        self._root = root
        self._seed = seed
        self._given = (environment, timeout_sec)
        self._sides: list[BridgeSide] = []

    def begin(self, step: str) -> BridgeWorld:
        self.end()
        # Deterministic random numbers: the keys live only as long as the directory.
        self.random = random.Random(f"{self._seed}/{step}")  # noqa: S311
        self.root = self._root / step
        self.root.mkdir()
        self.recorded: list[RecordEvent] = []
        for name, people in (("z1", ONLINE), ("z2", OFFLINE)):
            side = BridgeSide(self.root / name, people, self.random, *self._given)
            self._sides.append(side)
            side.start()
        self.z1, self.z2 = self._sides
        self._trust()
        return self

    def end(self) -> None:
        for side in self._sides:
            side.hub.end()
        self._sides.clear()

    @property
    def online(self) -> BridgeSettings:
        return self.z1.settings(
            {
                "zone": "online",
                "name": "z1",
                "audit": {"reader": "bridge/identity_card.pub"},
                "streams": [{"source": item} for item in SOURCES],
                "export": {"max_bundle_events": BUNDLE_EVENTS},
            }
        )

    @property
    def offline(self) -> BridgeSettings:
        hub_id = self.z1.identity.hub_id.hex()
        return self.z2.settings(
            {
                "zone": "offline",
                "name": "z2",
                "audit": {"reader": "reader/identity_card.pub"},
                "reader": {"client": "reader", "principal": "reader"},
                "import_recorder": self.z2.identity_document("import-recorder"),
                # A self-test needs little room, and has to run where little is left.
                "import": {"reserve_bytes": 0},
                "streams": [{"source": item, "hub_id": hub_id} for item in SOURCES],
            }
        )

    @property
    def trust(self) -> TrustStore:
        return TrustStore.read(self.z2.root / "trust")

    def record(self, count: int) -> None:
        """Record this many more events, and create a checkpoint over them."""
        fresh = [self._event(len(self.recorded) + number) for number in range(count)]
        with self.z1.acting("producer") as client:
            bodies = [item.encode() for item in fresh]
            for _ in client.send_many(
                ORDERS, bodies, schema=RECORD_SCHEMA, recipient=self.z1.recipient("bridge")
            ):
                pass
        self.recorded += fresh
        self.checkpoint()

    def checkpoint(self) -> RecorderCheckpoint:
        with self.z1.acting("admin") as client:
            return create_recorder_checkpoint(client.meet(), _PROFILE, None)

    def export(self, gaps: Iterable[ExportGap] | None = None) -> list[ExportedCarrier]:
        """Export new events, or missing ones again."""
        medium = self._folder("written")
        run = ExportSetup(
            media=Media(roots=(medium,), medium_id=medium.name),
            operator=OPERATOR,
            runtime=self.z1.runtime(),
            now_ms=lambda: time.time_ns() // 1_000_000,
            retry_policy=self.z1.retry_policy,
        )
        with opened(self.online, run) as exporter:
            return list(exporter.export() if gaps is None else exporter.again(gaps))

    def carry(self, *carriers: ExportedCarrier) -> Path:
        """A medium with exactly these carriers."""
        medium = self._folder("carried")
        for carrier in carriers:
            for bag in carrier.bags:
                shutil.copytree(bag, medium / bag.parent.name / bag.name)
        return medium

    def bring(self, *media: Path) -> list[ImportOutcome]:
        order = ImportRequest(operator=OPERATOR, media=media)
        run = run_import(self.offline, order, self.z2.runtime(), retry_policy=self.z2.retry_policy)
        expect("audit entries that wait", run.pending, None)
        return list(run.outcomes)

    def imported(self) -> list[ImportedEvent]:
        """The events of the import stream, in order."""
        with self.z2.acting("reader") as reader:
            events = []
            for pair in reader.read(IMPORTED):
                body = reader.open_payload(pair.msg)
                events.append(read_imported(body.header.schema, body.body, pair.msg.client_id))
            return events

    def smuggle(self, bodies: Sequence[bytes]) -> None:
        """Write to the import stream as the bridge, bypassing the importer."""
        with self.z2.acting("bridge") as client:
            to = self.z2.recipient("reader")
            for _ in client.send_many(IMPORTED, bodies, schema=IMPORT_SCHEMA, recipient=to):
                pass

    def by_hand(self, seq: int, bundle_id: bytes) -> ImportedEvent:
        """An event of Z1 as an import of it alone from that bundle would be."""
        with self.z1.acting("bridge") as client:
            opener = BodyOpener(client.session.identity.readers(), client.session.limits)
            (pair,) = client.read(ORDERS, from_seq=seq, to_seq=seq)
            event = opener.event(pair)
        return ImportedEvent(
            source_hub_id=self.z1.identity.hub_id,
            origin_stream=ORDERS,
            origin_msg=event.payload,
            origin_receipt=event.receipt,
            body_key=event.body_key,
            bundle_id=bundle_id,
            position=0,
            count=1,
            import_time=int(time.time()),
            bridge_id=self.z2.keys["bridge"],
        )

    def claim(self, *events: AuditEvent) -> None:
        """Write a false audit entry as the audit identity of Z2."""
        with self.z2.acting("audit") as client:
            writer = AuditWriter(
                client,
                OFFLINE_LOG,
                origin=OPERATOR,
                recipient=self.z2.recipient("reader"),
                clock=lambda: time.time_ns() // 1_000_000,
            )
            for event in events:
                writer.record(event)

    def audits(self) -> list[str]:
        """The kinds of entries in the importer's audit log."""
        with self.z2.acting("reader") as reader:
            return [recorded_entry.event.KIND for recorded_entry in read_log(reader, OFFLINE_LOG)]

    @contextmanager
    def means(self) -> Iterator[VerifyContext]:
        with tempfile.TemporaryDirectory(dir=self.root) as scratch:
            yield VerifyContext(trust=self.trust, scratch=Path(scratch))

    def collected(self, listener: Listener | None = None) -> Collected:
        with self.z2.acting("reader") as reader, self.means() as means:
            return collect_offline(
                self.offline, reader, Carried(means), (), listener or NullCollector()
            )

    def completions(self) -> Completions:
        with self.z2.acting("reader") as reader:
            return read_completions(self.offline, reader)

    def _trust(self) -> None:
        """The trust files of the other zone."""
        folder = self.z2.root / "trust"
        folder.mkdir()
        pin_hub(folder, self.z1.identity, self.z1.identity_sig)
        pin_exporter(folder, "z1", ClientDir(self.z1.root / "bridge").read_card().id_sign)

    def _folder(self, kind: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.root))

    def _event(self, number: int) -> RecordEvent:
        payload = {"number": number, "word": self.random.randbytes(6).hex()}
        return RecordEvent(
            subject_id=f"user:{number % 3}",
            principal_id=self.z1.keys["producer"],
            event_type="order.placed",
            event_time=_START_MS + number,
            origin="self-test",
            payload=AnyItem(value_to_cbor(payload)),
        )


def states(outcomes: Sequence[ImportOutcome]) -> list[str]:
    return [outcome.state.value for outcome in outcomes]


@contextmanager
def a_bridge_world(
    seed: int, count: int | None, timeout_sec: float, environment: Mapping[str, str]
) -> Iterator[BridgeWorld]:
    """A bridge world under TMPDIR; its processes and its directory are always removed."""
    del count  # no step here has many cases
    with signals_unwind(), tempfile.TemporaryDirectory(prefix="veen-selftest-") as folder:
        world = BridgeWorld(Path(folder), seed, timeout_sec, environment)
        try:
            yield world
        finally:
            world.end()


class SelftestZone:
    """``streams`` are those of the producer, by name, with their types. ``client`` is who the
    recorder acts as, and who events are sealed to; ``more`` goes to the end of the settings.
    """

    def __init__(
        self,
        world: World,
        folder: Path,
        streams: Mapping[str, tuple[str, ...]],
        *,
        client: str = "admin",
        more: str = "",
    ) -> None:
        self.world = world
        self.folder = folder
        self.names = tuple(streams)
        self.config = folder / "recorder.toml"
        folder.mkdir()
        self.config.write_text(self.text(streams, client=client) + more)

    def text(
        self,
        streams: Mapping[str, tuple[str, ...]],
        *,
        client: str = "admin",
        producer: str = "producer",
    ) -> str:
        world = self.world
        return f"""
zone = "selftest"
admins = ["{world.people["admin"].hex()}"]
[hub]
url = "{world.hub.url}"
hub_id = "{world.hub_id.hex()}"
client = "{world.root / client}"
principal = "{client}"
reader = "{world.root / client / "identity_card.pub"}"
{"".join(_stream(stream, types, world.people[producer]) for stream, types in streams.items())}"""

    @property
    def settings(self) -> RecorderSettings:
        return load(self.config)

    def register(self) -> None:
        """Register all streams with the hub, including those of the recorder."""
        transport = self.world.api().transport
        for stream in self.settings.streams.streams:
            transport.post("/tooling/streams", RegisterRequest(name=stream.name), StreamsResponse)

    def token(self, who: str, streams: Iterable[str]) -> CapToken:
        """A capability of the trusted issuer, not yet authorized at the hub."""
        return captoken.issue(
            self.world.issuer,
            subject_pk=self.world.people[who],
            stream_ids=[stream_id(stream) for stream in streams],
            ttl=_HOUR_SEC,
        )

    @contextmanager
    def acting(self, who: str = "admin") -> Iterator[Client]:
        """A principal of the hub, with its own key and name."""
        hub = replace(self.settings.hub, client=self.world.root / who, principal=who)
        with open_recorder_client(
            hub,
            passphrase=None,
            runtime=self.world.runtime(),
            retry_policy=RetryPolicy(timeout_sec=self.world.timeout_sec),
        ) as client:
            client.meet()
            yield client

    @contextmanager
    def emitter(self, who: str = "producer") -> Iterator[Emitter]:
        """An emitter, with a capability if the hub is gated."""
        settings = self.settings
        with self.acting(who) as client:
            if who == "producer":
                token = self.token(who, self.names)
                self.world.api().authorize(token)
                client.renew(token)
            recipient = reader_key(settings.hub, int(time.time()))
            yield Emitter(client, settings.streams, clock=_now_ms, recipient=recipient)

    def services(self) -> RecorderServices:
        return RecorderServices(self.settings, None, os.urandom)

    def checkpoint(self, client: Client) -> CheckpointCreated:
        """Create, verify and store a recorder checkpoint, as the command does."""
        services = self.services()
        return create_checkpoint(
            client.meet(), services.checkpoint_store(), services.settings.profile_id()
        )

    def checkpoint_now(self) -> RecorderCheckpoint:
        with self.acting() as client:
            return self.checkpoint(client).checkpoint


def _stream(name: str, types: tuple[str, ...], producer: bytes) -> str:
    listed = ", ".join(f'"{type_}"' for type_ in types)
    return f"""
[[streams]]
name = "{name}"
event_types = [{listed}]
producers = ["{producer.hex()}"]
"""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
