"""Both sides of a gap for tests: bundles cut from a log in memory, and a zone that imports them."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge import connect
from bridge.audit_log import AuditEvent, read_log
from bridge.carrier.codec import Sealing
from bridge.carrier.format import CarrierLedger, Packing, Preset
from bridge.carrier.verify import VerifyContext
from bridge.carrier.writer import Content, stage
from bridge.importer.directory import ImportDirectory
from bridge.importer.ledger import ImportLedger, SourceStream
from bridge.importer.outcome import ImportOutcome
from bridge.importer.run import ImportRequest, ImportRunResult, run_import
from bridge.reconcile.collect import Carried, collect_offline
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.report import Class
from bridge.settings import BridgeSettings, load
from bridge.stream_map import OFFLINE_LOG
from bridge.trust import TrustStore, pin_exporter, pin_hub
from support.bridge.bridge_world import EXPORTER, HUB, IDENTITY, World, parts
from support.bridge.import_oracles import verify_ends, verify_only_again
from veen.client.transport import RetryPolicy
from veen.digest import h, h_file
from veen.events import ImportedEvent, read_imported
from veen.keystore.directory import ClientDir
from veen.system.environment import Progress, Runtime, Watch, no_progress, no_progress_watch

HASTY = RetryPolicy(attempts=3, first_sec=0.01, most_sec=0.05, timeout_sec=10)
FOLDERS = {
    "inbox", "staging", "waiting", "committing", "archive", "quarantine", "receipts", "approvals",
    "checkpoints",
}  # fmt: skip
FILES = {"lock", "ledger.db", "ledger.db-wal", "ledger.db-shm"}


@dataclass
class Zone:
    """The importing zone at one hub; ``name`` keeps its stream and audit entries apart."""

    root: Path
    hub: Any
    name: str
    clock: int | None = None
    toml: str = ""
    capabilities: dict[str, Path] = field(default_factory=dict)
    presented: dict[Path, None] = field(default_factory=dict)
    outcomes: list[ImportOutcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(stream=f"export/z1/{self.name}")
        self.target = f"import/z1/{self.name}"
        self.root.mkdir()
        (self.root / "trust").mkdir()
        pin_hub(self.root / "trust", IDENTITY, IDENTITY.signature_by(HUB))
        pin_exporter(self.root / "trust", "z1", EXPORTER.public)
        # All zones at a hub write one audit log, so they have one reader.
        self.reader_dir = self.hub.data.parent / "reader"
        for item in (self.root / "bridge", self.root / "audit", self.reader_dir):
            if not ClientDir(item).keystore.exists():
                ClientDir(item).create(now=int(time.time()), random=os.urandom, passphrase=None)
        self._numbers = itertools.count(1)
        self.ledger = CarrierLedger(bridge_id=h(b"bridge"))
        self.write_settings()

    def write_settings(self, more: str = "", importing: str = "") -> None:
        granted = {
            capability: f'capability = "{path}"' for capability, path in self.capabilities.items()
        }
        (self.root / "bridge.toml").write_text(f"""
zone = "offline"
name = "z2"
trust = "trust"
[hub]
url = "{self.hub.url}"
hub_id = "{self.hub.client().hub_id.hex()}"
[bridge]
client = "bridge"
{granted.get("bridge", "")}
[audit]
client = "audit"
reader = "{self.reader_dir}/identity_card.pub"
{granted.get("audit", "")}
[reader]
client = "{self.reader_dir}"
[import]
state = "state"
{importing}
[[streams]]
hub_id = "{IDENTITY.hub_id.hex()}"
source = "{self.world.stream}"
{more}
""")

    @property
    def settings(self) -> BridgeSettings:
        return load(self.root / "bridge.toml")

    @property
    def import_dir(self) -> ImportDirectory:
        return ImportDirectory(self.root / "state")

    def around(self) -> Runtime:
        clock = self.clock
        return Runtime(
            clock=lambda: int(time.time()) if clock is None else clock,
            random=os.urandom,
            sleep=time.sleep,
        )

    def bundle(self, first: int, last: int, size: int | None = None) -> bytes:
        while len(self.world.events) < max(last, size or 0):
            self.world.grow(1)
        return self.world.bundle(first, last, size or last)

    def carry(
        self,
        raw: bytes,
        packing: Packing | None = None,
        sealing: Sealing | None = None,
        ledger: CarrierLedger | None = None,
    ) -> Path:
        """A medium with a carrier of this bundle."""
        if ledger is None:
            self.ledger = ledger = self.ledger.with_bundle(parts(raw)[0])
        place = self.root / f"z1-{next(self._numbers)}"
        (place / "medium").mkdir(parents=True)
        (place / "content").write_bytes(raw)
        content = Content(file=place / "content", ledger=ledger)
        packing = packing or Preset.ANY.packing()
        stage(content, packing, EXPORTER, place / "medium", sealing)
        return place / "medium"

    def medium(self, first: int, last: int, size: int | None = None) -> Path:
        return self.carry(self.bundle(first, last, size))

    def run(
        self,
        *media: Path,
        runtime: Runtime | None = None,
        watch: Watch = no_progress_watch,
        **more: Any,
    ) -> ImportRunResult:
        order, before = (
            ImportRequest(operator=self.name, media=media, **more),
            [tree(item) for item in media],
        )
        result = run_import(
            self.settings, order, runtime or self.around(), retry_policy=HASTY, watch=watch
        )
        # O9: whatever became of it, a medium is only read.
        assert [tree(item) for item in media] == before
        self.presented.update(dict.fromkeys(media))
        self.outcomes += result.outcomes
        return result

    def states(self, *media: Path, **more: Any) -> list[str]:
        result = self.run(*media, **more)
        assert result.pending is None, result.pending
        return [outcome.state.value for outcome in result.outcomes]

    def reader(self) -> Any:
        settings = self.settings
        assert settings.reader is not None
        return connect.open_bridge_client(
            settings.hub, settings.reader, runtime=self.around(), retry_policy=HASTY
        )

    def imported(self) -> list[ImportedEvent]:
        """What is in the import stream, in order."""
        with self.reader() as reader:
            result = []
            for pair in reader.read(self.target):
                opened = reader.open_payload(pair.msg)
                result.append(read_imported(opened.header.schema, opened.body, pair.msg.client_id))
            return result

    def audits(self) -> list[AuditEvent]:
        """The audit entries of this zone's runs."""
        # All zones at a hub read one log on from where the last of them has read it to.
        known: list[AuditEvent] = self.hub.__dict__.setdefault("audits_read", [])
        with self.reader() as reader:
            known += [
                recorded_entry.event
                for recorded_entry in read_log(reader, OFFLINE_LOG, len(known) + 1)
            ]
        return [item for item in known if item.operator == self.name]

    def kinds(self) -> list[str]:
        return [audit.KIND for audit in self.audits()]

    def files(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self.import_dir.root / folder).iterdir())

    def reason(self) -> dict[str, Any]:
        (place,) = (self.import_dir.root / "quarantine").iterdir()
        document: dict[str, Any] = json.loads((place / "reason.json").read_text())
        return document

    def check(self, seqs: Sequence[int], excluded: Sequence[int] = (), **order: Any) -> None:
        """The oracles, after runs and after everything was presented once more."""
        self.check_now(seqs, excluded, **order)
        before, audits = self.imported(), self.audits()
        self.run(*(item for item in self.presented if item.exists()), **order)
        verify_only_again(audits, self.audits()[len(audits) :])
        assert self.imported() == before
        self._check_once(seqs, excluded)

    def check_now(self, seqs: Sequence[int], excluded: Sequence[int] = (), **order: Any) -> None:
        """The oracles, after a run and after the next, which has nothing to do."""
        for _ in range(2):
            self._check_once(seqs, excluded)
            self.run(**order)
        self._check_report(set(seqs) - set(excluded), set(excluded))

    def _check_once(self, seqs: Sequence[int], excluded: Sequence[int]) -> None:
        events = self.imported()
        keys = [event.receipt().stream_seq for event in events]
        assert sorted(keys) == sorted(set(seqs))
        assert keys == list(seqs)
        for event in events:
            seq = event.receipt().stream_seq
            source = self.world.events[seq - 1]
            assert event.origin_receipt == source.receipt
            assert event.origin_msg == (None if seq in excluded else source.payload)
            assert (event.excluded is not None) == (seq in excluded)
            event.verify(IDENTITY)
        self._check_audits(events)
        self._check_files()
        with ImportLedger(self.import_dir.ledger) as ledger:
            spans = ledger.spans(SourceStream(IDENTITY.hub_id, self.world.stream))
            held = [seq for span in spans for seq in range(span.first, span.last + 1)]
            assert held == sorted(seqs)
            assert ledger.open_plans() == []
            assert ledger.pending() == []

    def _check_report(self, imported: set[int], excluded: set[int]) -> None:
        """O5: the reconciliation says of every event what became of it, and of none two things."""
        scratch = self.root / "reconcile"
        scratch.mkdir(exist_ok=True)
        means = VerifyContext(trust=TrustStore.read(self.settings.trust), scratch=scratch)
        with self.reader() as reader:
            offline = collect_offline(self.settings, reader, Carried(means))
        report = reconcile(offline.facts)
        (mine,) = (stream for stream in report.streams if stream.stream == self.world.stream)
        held = {kind: _seqs(ranges) for kind, ranges in mine.classes.items()}
        assert (held[Class.IMPORTED], held[Class.EXCLUDED]) == (imported, excluded)
        assert sum(map(len, held.values())) == len(set().union(*held.values()))
        assert not mine.duplicate
        assert not mine.unfulfilled

    def _check_audits(self, events: list[ImportedEvent]) -> None:
        audits: list[Any] = list(self.audits())
        verify_ends(audits, self.outcomes, self.presented)
        successes = {audit.bundle_id for audit in audits if audit.KIND == "import.success"}
        assert successes == {event.bundle_id for event in events}

    def _check_files(self) -> None:
        """Nothing but what is named, and nothing half-done."""
        names = {path.name for path in self.import_dir.root.iterdir()}
        assert names <= FOLDERS | FILES | {
            name for name in names if name.startswith("ledger.db.old")
        }
        assert self.files("staging") == []
        assert self.files("committing") == []
        assert [str(path) for path in self.import_dir.root.rglob(".*")] == []
        assert [str(path) for path in self.import_dir.root.rglob("*.tmp")] == []


def when_it_begins(task: str, action: Callable[[], None]) -> Watch:
    """A watch of an import that acts whenever a task with this description begins."""

    @contextmanager
    def watch(what: str, _unit: str) -> Iterator[Progress]:
        if task in what:
            action()
        yield no_progress

    return watch


def _seqs(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {seq for first, last in ranges for seq in range(first, last + 1)}


def tree(root: Path) -> dict[str, str]:
    """Every file below a folder with its hash, to see whether anything changed."""
    result = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file():
            result[str(path)] = "other"
        else:
            with path.open("rb") as file:
                result[str(path)] = h_file(file).hex()
    return result
