"""Histories of a bridge that really happen: two hubs, the exporter, media, the importer.

What must be reported is worked out from what was done to each carrier, and from nothing else.
"""

from __future__ import annotations

import itertools
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bridge.carrier.format import HEADER_BYTES
from bridge.carrier.verify import VerifyContext
from bridge.connect import open_bridge_client
from bridge.exporter.deliver import Media
from bridge.exporter.gaps import ExportGap
from bridge.exporter.run import ExportedCarrier, ExportSetup, opened
from bridge.importer.run import ImportRequest, run_import
from bridge.reconcile.collect import Carried, collect_offline
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.report import ReconcileReport
from bridge.settings import BridgeSettings
from bridge.trust import TrustStore, pin_exporter, pin_hub
from support.bridge.reconcile_real_sides import (
    AROUND,
    HASTY,
    Side,
    an_event,
    identity_in,
    stream_name,
)
from veen.client.checkpoints import create_recorder_checkpoint
from veen.events import RECORD_SCHEMA
from veen.keystore.directory import ClientDir
from veen.log import layout


@dataclass
class Bundle:
    """A bundle of the history and what became of its carriers."""

    carrier: ExportedCarrier
    checkpoint_end: int
    first: int
    last: int
    is_damaged: bool = False
    is_rejected: bool = False
    is_here: bool = False
    """A sound carrier of it has arrived, and nobody has said no."""
    is_imported: bool = False

    @property
    def bundle_id(self) -> bytes:
        result = self.carrier.entry.bundle_id
        assert result is not None
        return result


@dataclass
class RealHistory:
    """One stream from its first event to the last carrier that arrives."""

    number: int
    online: Side
    offline: Side
    folder: Path
    stream: str = ""
    bundles: list[Bundle] = field(default_factory=list)
    c1: int = 0
    heartbeat: ExportedCarrier | None = None

    def __post_init__(self) -> None:
        self.random = Random(self.number)
        self.stream = self.stream or stream_name(self.number)
        self.mapped = self.stream
        self._numbers = itertools.count(1)
        trust = self.folder / "trust"
        trust.mkdir(parents=True)
        identity, data = self.online.identity, self.online.hub.data
        pin_hub(trust, identity, (data / layout.IDENTITY_SIG).read_bytes())
        signer = ClientDir(self.online.folder / "bridge").read_card().id_sign
        pin_exporter(trust, "z1", signer)
        self._recorded = 0

    def record_and_export(self) -> None:
        count = self.random.randint(2, 6)
        numbers = range(self._recorded, self._recorded + count)
        self.record("config.changed", [{"number": number} for number in numbers])
        self.export()

    def record(self, event_type: str, payloads: list[dict[str, Any]]) -> None:
        """Events with these payloads, and a checkpoint over them."""
        acting = {"client": "producer", "principal": "producer"}
        settings = self.online.settings([{"source": self.stream}], bridge=acting)
        key = ClientDir(self.online.folder / "bridge").read_card().recipient(int(time.time()))
        with open_bridge_client(
            settings.hub, settings.bridge, runtime=AROUND, retry_policy=HASTY
        ) as client:
            principal = client.session.identity.client_id
            bodies = [an_event(principal, event_type, payload) for payload in payloads]
            for _ in client.send_many(self.stream, bodies, schema=RECORD_SCHEMA, recipient=key):
                pass
            create_recorder_checkpoint(client.meet(), bytes(32), None)
        self._recorded += len(payloads)

    def export(self) -> None:
        most = self.random.randint(1, 3)
        for item in self._exported(lambda exporter: exporter.export(), most):
            entry = item.entry
            assert entry.stream == self.stream
            self.bundles.append(Bundle(item, self._recorded, entry.from_seq, entry.to_seq))

    def beat(self) -> None:
        (self.heartbeat,) = self._exported(lambda exporter: exporter.heartbeat(), 3)

    def export_again(self, bundle: Bundle) -> None:
        """Byte for byte what was lost, by its range."""
        gap = ExportGap(self.stream, bundle.first, bundle.last)
        (again,) = self._exported(lambda exporter: exporter.again([gap]), 3)
        assert again.entry.bundle_id == bundle.bundle_id
        bundle.carrier = again

    def bring(self, sound: list[Bundle], damaged: list[Bundle], rejected: list[Bundle]) -> None:
        """One run of the importer, and what it must come to."""
        medium = self._medium()
        for bundle in sound:
            self._carry(bundle.carrier, medium)
        for bundle in damaged:
            place = self._carry(bundle.carrier, self._medium())
            self._flip(place)
            shutil.copytree(place, medium / place.parent.name / f"{place.name}-damaged")
        self._import(medium, tuple(bundle.bundle_id.hex() for bundle in rejected))
        for bundle in damaged:
            bundle.is_damaged = True
        for bundle in sound:
            bundle.is_here = bundle.is_here or not bundle.is_rejected
        for bundle in rejected:
            if bundle.is_here and not bundle.is_imported:
                bundle.is_rejected, bundle.is_here = True, False
        self._settle()

    def bring_heartbeat(self) -> None:
        assert self.heartbeat is not None
        medium = self._medium()
        self._carry(self.heartbeat, medium)
        self._import(medium, ())
        self.c1 = max(self.c1, self._recorded)

    def due(self) -> dict[str, set[int]]:
        """The class of every event that was exported and told of, by what was done above."""
        classes: dict[str, set[int]] = {
            name: set() for name in ("imported", "waiting", "quarantined", "missing")
        }
        for bundle in self.bundles:
            if self._is_reported(bundle):
                classes[self._class(bundle)] |= set(range(bundle.first, bundle.last + 1))
        return classes

    def closed_to(self) -> int:
        reached = 0
        for bundle in self.bundles:
            if not bundle.is_imported:
                break
            reached = bundle.last
        return min(reached, self.c1)

    def report(self) -> ReconcileReport:
        settings = self._offline_settings()
        assert settings.reader is not None
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        means = VerifyContext(trust=TrustStore.read(settings.trust), scratch=scratch)
        with open_bridge_client(
            settings.hub, settings.reader, runtime=AROUND, retry_policy=HASTY
        ) as reader:
            return reconcile(collect_offline(settings, reader, Carried(means)).facts)

    def _class(self, bundle: Bundle) -> str:
        if bundle.is_imported:
            return "imported"
        if bundle.is_here:
            return "waiting"
        return "quarantined" if bundle.is_rejected or bundle.is_damaged else "missing"

    def _is_reported(self, bundle: Bundle) -> bool:
        """A ledger that arrived in a sound carrier names all before it."""
        if self.c1 == self._recorded and self.heartbeat is not None:
            return True
        at = self.bundles.index(bundle)
        came = (each.is_here or each.is_imported or each.is_rejected for each in self.bundles[at:])
        return bundle.is_damaged or any(came)

    def _settle(self) -> None:
        """What is here goes in as soon as all before it is in."""
        for bundle in self.bundles:
            before = bundle.first == 1 or any(
                each.is_imported and each.last == bundle.first - 1 for each in self.bundles
            )
            if bundle.is_here and before and not bundle.is_imported:
                bundle.is_imported = True
                self.c1 = max(self.c1, bundle.checkpoint_end)

    def _import(self, medium: Path, reject: tuple[str, ...]) -> None:
        reason = "not for us" if reject else ""
        order = ImportRequest(operator="history", media=(medium,), rejected=reject, reason=reason)
        result = run_import(self._offline_settings(), order, AROUND, retry_policy=HASTY)
        assert result.pending is None

    def _offline_settings(self) -> BridgeSettings:
        hub_id = self.online.identity.hub_id.hex()
        return self.offline.settings(
            [{"source": self.mapped, "hub_id": hub_id}],
            bridge={"client": str(identity_in(self.folder / "bridge").root)},
            reader={"client": "reader"},
            trust=str(self.folder / "trust"),
            **{"import": {"state": str(self.folder / "state")}},
        )

    def _exported(self, export: Any, most: int) -> list[ExportedCarrier]:
        settings = self.online.settings(
            [{"source": self.stream}], export={"max_bundle_events": most}
        )
        medium = self._medium()
        run = ExportSetup(
            media=Media(roots=(medium,), medium_id=str(medium)),
            operator="history",
            runtime=AROUND,
            now_ms=lambda: time.time_ns() // 1_000_000,
            retry_policy=HASTY,
            streams=(self.stream,),
        )
        with opened(settings, run) as exporter:
            return list(export(exporter))

    def _carry(self, carrier: ExportedCarrier, medium: Path) -> Path:
        (bag,) = carrier.bags
        place = medium / bag.parent.name / bag.name
        shutil.copytree(bag, place, dirs_exist_ok=True)
        return place

    def _flip(self, place: Path) -> None:
        (volume,) = place.rglob("v001.agv")
        raw = bytearray(volume.read_bytes())
        raw[self.random.randrange(HEADER_BYTES, len(raw))] ^= 1
        volume.write_bytes(raw)

    def _medium(self) -> Path:
        place = self.folder / f"medium-{next(self._numbers)}"
        place.mkdir()
        return place
