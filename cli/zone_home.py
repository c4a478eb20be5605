"""Where everything of a zone lies: one folder, with the one file that configures it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cli.failure import Refused
from recorder import zone as zones
from recorder.zone import Zone
from veen.keystore.directory import ClientDir


@dataclass(frozen=True, slots=True)
class ZoneHome:
    """``run`` is about processes and goes with them; all else stays."""

    root: Path

    @property
    def file(self) -> Path:
        return self.root / zones.FILE

    @property
    def hub(self) -> Path:
        return self.root / "hub"

    @property
    def rest(self) -> Path:
        """While this is there, the supervisor lets the hub rest."""
        return self.root / "hub.rest"

    @property
    def resting(self) -> Path:
        """What the supervisor answers with, once the hub has ended."""
        return self.root / "hub.resting"

    @property
    def capabilities(self) -> Path:
        return self.root / "capabilities"

    @property
    def handover(self) -> Path:
        """What the other zone has to be given: public keys and names, no secret."""
        return self.root / "handover"

    @property
    def trust(self) -> Path:
        return self.root / "trust"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def token(self) -> Path:
        """Of the one who may ask the query service."""
        return self.secrets / "analyst.token"

    @property
    def passwords(self) -> Path:
        """Of the users of Airflow, in the file that its SimpleAuthManager reads."""
        return self.secrets / "airflow-passwords.json"

    @property
    def airflow_keys(self) -> Path:
        return self.secrets / "airflow-keys.json"

    @property
    def airflow(self) -> Path:
        return self.root / "airflow"

    @property
    def postgres(self) -> Path:
        return self.root / "postgres"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    def identity(self, name: str) -> ClientDir:
        return ClientDir(self.root / "identities" / name)

    def capability(self, name: str) -> Path:
        return self.capabilities / f"{name}.cap"

    def zone(self) -> Zone:
        if not self.file.exists():
            raise Refused(f"{self.root} is no zone: it has no {zones.FILE}; see veen zone init")
        return zones.load(self.file)
