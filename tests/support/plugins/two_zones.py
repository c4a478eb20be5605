"""An online zone that has exported, and an offline zone with an Airflow that is to let it in.

Only the offline one needs Airflow: what the online one does is done by hand here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cli.demo import workload
from zone.directory import ZoneHome
from zone.init import ZoneRequest, init
from zone.services import authorize
from zone.services import hub as hub_service

COUNTS = {"gateway": 60, "access": 20, "hosts": 10}
PAUSED = {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True"}
START_MS = 1_767_225_600_000


class TwoZones:
    def __init__(self, root: Path) -> None:
        self.online, self.offline = ZoneHome(root / "z1"), ZoneHome(root / "z2")
        self.medium = root / "medium"
        self.medium.mkdir()

    def make(self) -> TwoZones:
        self._init(self.online, "online", None)
        with self._hub():
            authorize(self.online)
            self._record()
            self._checkpoint()
            self._veen("bridge", "export", *self._config(), "--medium", str(self.medium))
        self._init(self.offline, "offline", self.online.handover)
        return self

    def damage(self, stream: str) -> None:
        """Turn one bit of the carrier of a stream, as happens on the way."""
        labels = self.medium.glob("agb0/*/LABEL.txt")
        (bag,) = (label.parent for label in labels if stream in label.read_text())
        (volume,) = bag.glob("data/*")
        raw = bytearray(volume.read_bytes())
        raw[len(raw) // 2] ^= 1
        volume.chmod(0o600)
        volume.write_bytes(raw)

    def up(self) -> None:
        """With every DAG paused: a test says which of them it wants."""
        self._veen("zone", "up", "--directory", str(self.offline.root), environ=PAUSED)

    def down(self) -> None:
        self._veen("zone", "down", "--directory", str(self.offline.root))

    def passwords(self) -> dict[str, str]:
        return dict(json.loads(self.offline.passwords.read_bytes()))

    def _init(self, home: ZoneHome, role: str, trust: Path | None) -> None:
        request = ZoneRequest(
            name=home.root.name, role=role, storage=None, trust=trust, medium=self.medium
        )
        init(home, request, now=int(time.time()), random=os.urandom)

    @contextmanager
    def _hub(self) -> Iterator[None]:
        service = hub_service(self.online, self.online.zone())
        with (self.online.root / "hub.log").open("wb") as log:
            process = subprocess.Popen(service.command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while not service.is_ready():
                assert process.poll() is None, (self.online.root / "hub.log").read_text()
                assert time.monotonic() < deadline, "the hub does not answer"
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            process.wait()

    def _record(self) -> None:
        events = workload.events(7, START_MS, COUNTS)
        for name, path in workload.write(self.online.root / "workload", events):
            who = ["--client", str(self.online.root / "identities" / name), "--principal", name]
            cap = ["--cap", str(self.online.capability(name))]
            self._veen("recorder", "emit", *self._config(), *who, *cap, "--file", str(path))

    def _checkpoint(self) -> None:
        who = ["--client", str(self.online.root / "identities" / "admin"), "--principal", "admin"]
        self._veen("recorder", "checkpoint", "create", *self._config(), *who)

    def _config(self) -> list[str]:
        return ["--config", str(self.online.file)]

    def _veen(self, *words: str, environ: Mapping[str, str] = MappingProxyType({})) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *words, "--json"],
            env=os.environ | environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)
