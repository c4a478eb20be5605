"""Carriers of a world in memory, and the verdict on them, the same in both verifiers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from bridge import standalone_verifier as standalone
from bridge.carrier.codec import Sealing
from bridge.carrier.format import CarrierLedger, Packing, Preset
from bridge.carrier.verify import VerifyContext, VerifyReport, check_carrier
from bridge.carrier.writer import Content, stage
from bridge.errors import CarrierRefused, Level
from bridge.trust import TrustStore, pin_exporter, pin_hub
from bridge.verify import verify_bundle
from support.bridge import bridge_world
from veen.digest import h


@dataclass
class CarrierFactory:
    """Writes carriers into a directory and verifies them with both verifiers."""

    root: Path

    def __post_init__(self) -> None:
        self._number = itertools.count(1)
        self.trust_dir = self.root / "trust"
        self.trust_dir.mkdir()
        identity = bridge_world.IDENTITY
        pin_hub(self.trust_dir, identity, identity.signature_by(bridge_world.HUB))
        pin_exporter(self.trust_dir, "z1", bridge_world.EXPORTER.public)
        self.trust = TrustStore.read(self.trust_dir)

    def new(self) -> Path:
        path = self.root / str(next(self._number))
        path.mkdir()
        return path

    def carry(
        self,
        raw: bytes,
        packing: Packing | None = None,
        sealing: Sealing | None = None,
        ledger: CarrierLedger | None = None,
    ) -> list[Path]:
        """The bags of a carrier with this bundle."""
        if ledger is None:
            header = bridge_world.parts(raw)[0]
            ledger = CarrierLedger(bridge_id=h(b"bridge")).with_bundle(header)
        place = self.new()
        file = place / "content"
        file.write_bytes(raw)
        (place / "staging").mkdir()
        staged = stage(
            Content(file=file, ledger=ledger),
            packing or Preset.ANY.packing(),
            bridge_world.EXPORTER,
            place / "staging",
            sealing,
        )
        return list(staged.bags)

    def check(self, bags: list[Path], level: Level = Level.VALID, **more: Any) -> VerifyReport:
        scratch = self.root / "scratch"
        scratch.mkdir(exist_ok=True)
        context = VerifyContext(trust=self.trust, scratch=scratch, **more)
        report = check_carrier(bags, level, context)
        assert list(scratch.iterdir()) == []
        return report

    def standalone(self, bags: list[Path]) -> str:
        """The verdict of the other verifier, in this process for speed."""
        hubs, exporters = standalone.read_trust(self.trust_dir)
        try:
            standalone.verify_carrier(bags, hubs, exporters)
        except standalone.VerifierRefused as error:
            return str(error.args[0])
        return "valid"

    def both(self, bags: list[Path]) -> str:
        """The verdict, which is the same in both verifiers."""
        verdict = self.check(bags).verdict
        assert self.standalone(bags) == verdict
        return verdict


def bundle_verdict(raw: bytes) -> str:
    """The verdict on the bytes of a bundle."""
    try:
        verify_bundle(BytesIO(raw), bridge_world.TRUST, None)
        verdict = "valid"
    except CarrierRefused as error:
        verdict = f"{error.fault.code.value}/{error.fault.detail_enum}"
    assert _standalone_verdict(raw) == verdict
    return verdict


def _standalone_verdict(raw: bytes) -> str:
    identity = bridge_world.IDENTITY
    hubs = {identity.hub_id: standalone.read(identity.encode(), standalone.IDENTITY)}
    try:
        standalone.verify_bundle(raw, hubs)
    except standalone.VerifierRefused as error:
        return str(error.args[0])
    return "valid"
