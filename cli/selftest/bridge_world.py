"""What steps of the bridge suite share: two zones with a gap between them, new for each step."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bridge.audit import AuditWriter, read_log
from bridge.audit_events import AuditEvent
from bridge.carrier.check import Means
from bridge.export_delivery import Media
from bridge.export_gaps import Gap
from bridge.export_run import Exported
from bridge.export_setup import Run, opened
from bridge.exporter import Opener
from bridge.importer.outcome import Outcome
from bridge.importer.run import Order, run_import
from bridge.prove_imports import Completions, read_completions
from bridge.reconcile.collect import Collected, Listener, Nobody, collect_offline
from bridge.reconcile.collect_carriers import Carried
from bridge.settings import Settings
from bridge.stream_map import OFFLINE_LOG
from bridge.trust import TrustStore, pin_exporter, pin_hub
from cli.selftest.bridge_side import IMPORTED, OFFLINE, ONLINE, ORDERS, SOURCES, Side
from cli.selftest.interruption import unwinding
from cli.selftest.step import expect
from veen import json_body
from veen.client import recorder_checkpoints
from veen.digest import h
from veen.import_event import SCHEMA as IMPORT_SCHEMA
from veen.import_event import ImportedEvent, read_imported
from veen.keystore.directory import ClientDir
from veen.overlay.body import AnyItem
from veen.record_event import SCHEMA, RecordEvent
from veen.recorder_checkpoint import RecorderCheckpoint

OPERATOR: Final = "self-test"
BUNDLE_EVENTS: Final = 2
_START_MS: Final = 1_763_500_000_000
_PROFILE: Final = h(b"profile of a self-test")


class BridgeWorld:
    """``recorded`` are the events of Z1 in their order; media are folders that are carried over."""

    def __init__(
        self, root: Path, seed: int, timeout_sec: float, environment: Mapping[str, str]
    ) -> None:
        self._root = root
        self._seed = seed
        self._given = (environment, timeout_sec)
        self._sides: list[Side] = []

    def begin(self, step: str) -> BridgeWorld:
        self.end()
        # Repeatable on purpose: its keys live as long as the directory.
        self.random = random.Random(f"{self._seed}/{step}")  # noqa: S311
        self.root = self._root / step
        self.root.mkdir()
        self.recorded: list[RecordEvent] = []
        for name, people in (("z1", ONLINE), ("z2", OFFLINE)):
            side = Side(self.root / name, people, self.random, *self._given)
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
    def online(self) -> Settings:
        return self.z1.settings(
            {
                "zone": "online",
                "name": "z1",
                "audit": {"reader": "bridge/identity_card.pub"},
                "streams": [{"source": one} for one in SOURCES],
                "export": {"max_bundle_events": BUNDLE_EVENTS},
            }
        )

    @property
    def offline(self) -> Settings:
        hub_id = self.z1.identity.hub_id.hex()
        return self.z2.settings(
            {
                "zone": "offline",
                "name": "z2",
                "audit": {"reader": "reader/identity_card.pub"},
                "reader": {"client": "reader", "principal": "reader"},
                "import_recorder": self.z2.told("import-recorder"),
                # A self-test needs little room, and has to run where little is left.
                "import": {"reserve_bytes": 0},
                "streams": [{"source": one, "hub_id": hub_id} for one in SOURCES],
            }
        )

    @property
    def trust(self) -> TrustStore:
        return TrustStore.read(self.z2.root / "trust")

    def record(self, count: int) -> None:
        """So many events more, and a checkpoint over them."""
        fresh = [self._event(len(self.recorded) + number) for number in range(count)]
        with self.z1.acting("producer") as client:
            bodies = [one.encode() for one in fresh]
            for _ in client.send_many(
                ORDERS, bodies, schema=SCHEMA, recipient=self.z1.recipient("bridge")
            ):
                pass
        self.recorded += fresh
        self.checkpoint()

    def checkpoint(self) -> RecorderCheckpoint:
        with self.z1.acting("admin") as client:
            return recorder_checkpoints.create(client.meet(), _PROFILE, None)

    def export(self, gaps: Iterable[Gap] | None = None) -> list[Exported]:
        """What is new, or once more what is missing in the other zone."""
        medium = self._folder("written")
        run = Run(
            media=Media(roots=(medium,), medium_id=medium.name),
            operator=OPERATOR,
            surroundings=self.z1.surroundings(),
            now_ms=lambda: time.time_ns() // 1_000_000,
            patience=self.z1.patience,
        )
        with opened(self.online, run) as exporter:
            return list(exporter.export() if gaps is None else exporter.again(gaps))

    def carry(self, *carriers: Exported) -> Path:
        """A medium with these carriers and no others."""
        medium = self._folder("carried")
        for one in carriers:
            for bag in one.bags:
                shutil.copytree(bag, medium / bag.parent.name / bag.name)
        return medium

    def bring(self, *media: Path) -> list[Outcome]:
        order = Order(operator=OPERATOR, media=media)
        result = run_import(self.offline, order, self.z2.surroundings(), patience=self.z2.patience)
        expect("audit entries that wait", result.pending, None)
        return list(result.outcomes)

    def imported(self) -> list[ImportedEvent]:
        """What stands in the import stream, in its order."""
        with self.z2.acting("reader") as reader:
            found = []
            for pair in reader.read(IMPORTED):
                body = reader.open_payload(pair.msg)
                found.append(read_imported(body.header.schema, body.body, pair.msg.client_id))
            return found

    def smuggle(self, bodies: Sequence[bytes]) -> None:
        """The bridge's own identity writes to its stream past the importer."""
        with self.z2.acting("bridge") as client:
            to = self.z2.recipient("reader")
            for _ in client.send_many(IMPORTED, bodies, schema=IMPORT_SCHEMA, recipient=to):
                pass

    def by_hand(self, seq: int, bundle_id: bytes) -> ImportedEvent:
        """An event of Z1 as an import of it alone from that bundle would write it."""
        with self.z1.acting("bridge") as client:
            opener = Opener(client.session.identity.readers(), client.session.limits)
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
        """The audit identity of Z2 writes what nobody has done."""
        with self.z2.acting("audit") as client:
            writer = AuditWriter(
                client,
                OFFLINE_LOG,
                origin=OPERATOR,
                recipient=self.z2.recipient("reader"),
                clock=lambda: time.time_ns() // 1_000_000,
            )
            for one in events:
                writer.record(one)

    def audits(self) -> list[str]:
        """The kinds of entries in the importer's audit log."""
        with self.z2.acting("reader") as reader:
            return [one.event.KIND for one in read_log(reader, OFFLINE_LOG)]

    @contextmanager
    def means(self) -> Iterator[Means]:
        with tempfile.TemporaryDirectory(dir=self.root) as scratch:
            yield Means(trust=self.trust, scratch=Path(scratch))

    def collected(self, listener: Listener | None = None) -> Collected:
        with self.z2.acting("reader") as reader, self.means() as means:
            return collect_offline(self.offline, reader, Carried(means), (), listener or Nobody())

    def completions(self) -> Completions:
        with self.z2.acting("reader") as reader:
            return read_completions(self.offline, reader)

    def _trust(self) -> None:
        """What somebody has carried over before anything else."""
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
            payload=AnyItem(json_body.encode_value(payload)),
        )


def states(outcomes: Sequence[Outcome]) -> list[str]:
    return [one.state.value for one in outcomes]


@contextmanager
def a_bridge_world(
    seed: int, count: int | None, timeout_sec: float, environment: Mapping[str, str]
) -> Iterator[BridgeWorld]:
    """Under TMPDIR; whatever happens, its processes and its directory are gone after."""
    del count  # no step here has many cases
    with unwinding(), tempfile.TemporaryDirectory(prefix="veen-selftest-") as folder:
        world = BridgeWorld(Path(folder), seed, timeout_sec, environment)
        try:
            yield world
        finally:
            world.end()
