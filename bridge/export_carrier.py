"""Making a carrier on local disk and proving it, before any medium is touched (AGB0 4.5, 4.9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bridge.bundle import Header
from bridge.bundle_reader import Source
from bridge.carrier.check import Means, check_carrier
from bridge.carrier.encryption import Sealing
from bridge.carrier.ledger import Ledger
from bridge.carrier.packing import Packing
from bridge.carrier.stage import Content, Staged, stage
from bridge.carrier.watch import Watch, unwatched
from bridge.continuity import HeldRoots
from bridge.exporter import RolledBack, Unopened
from bridge.refusal import Fault, Level, Refused
from bridge.trust import TrustStore
from bridge.verify import Verified, verify_bundle
from veen import sign
from veen.digest import h_file
from veen.hub_identity import HubIdentity


@dataclass(frozen=True, slots=True)
class Proven:
    """A bundle on local disk of which everything holds."""

    header: Header
    file: Path
    sha256: bytes
    root: bytes
    unopened: Unopened = field(default_factory=Unopened)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """``recipient`` is to whom carriers are sealed, if to anyone."""

    hub: HubIdentity
    signer: sign.PrivateKey
    packing: Packing
    recipient: bytes | None
    workers: int = 1
    watch: Watch = unwatched

    def prove(self, header: Header, file: Path, held: HeldRoots) -> Proven:
        """What the importing zone would check, and that it continues what was exported before."""
        with file.open("rb") as source:
            try:
                found = self._verified(source, header.export_stream, held)
            except Refused as error:
                if error.fault is not Fault.FORK:
                    raise
                raise RolledBack(
                    f"{header.export_stream} has another past before {header.export_seq_from} "
                    "than the one that was exported: the hub tells another history; stop it, and "
                    "compare it with its archive"
                ) from error
            source.seek(0)
            return Proven(found.header, file, h_file(source), found.root)

    def _verified(self, source: Source, stream: str, held: HeldRoots) -> Verified:
        with self.watch(f"proving {stream}", "events") as progress:
            return verify_bundle(
                source, self._trust(), held, workers=self.workers, progress=progress
            )

    def carrier(self, file: Path, ledger: Ledger, folder: Path) -> Staged:
        """The bags of a carrier below ``folder``, read again once they are written."""
        staging, scratch = folder / "carrier", folder / "scratch"
        staging.mkdir()
        scratch.mkdir()
        sealing = Sealing.by(self.signer, self.recipient) if self.recipient else None
        content = Content(file=file, ledger=ledger)
        staged = stage(content, self.packing, self.signer, staging, sealing, self.watch)
        means = Means(trust=self._trust(), scratch=scratch, watch=self.watch)
        report = check_carrier(staged.bags, Level.INTACT, means)
        if report.refusal is not None:
            raise report.refusal
        return staged

    def _trust(self) -> TrustStore:
        return TrustStore({self.hub.hub_id: self.hub}, {self.signer.public: "self"})
