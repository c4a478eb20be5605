"""Last part: a medium is changed on its way, and nothing of it goes in."""

from __future__ import annotations

import shutil
from pathlib import Path

from cli.demo.airflow_api import await_that
from cli.demo.carrying import export
from cli.demo.recording import record
from cli.demo.stage import PATIENCE_SEC, Side, Stage
from cli.failure import Refused
from cli.zone_people import HTTP
from recorder.artefact import Artefact
from veen.digest import h


def tamper(stage: Stage) -> None:
    stage.tell("more events are exported; on the way somebody turns one bit, and hides it well")
    record(stage, {"gateway": 120}, seed=7)
    stage.heads(stage.online, HTTP)
    medium = stage.folder / "stick-2"
    medium.mkdir()
    export(stage, medium, "STICK-2")
    carrier = _carrier_of(stage, medium, HTTP)
    changed = turn_one_bit(carrier)
    side = stage.offline
    before, known = stage.heads(side, "import/"), {one.name for one in _refused(side)}
    shutil.rmtree(stage.mounted)
    shutil.copytree(carrier, stage.mounted / "agb0" / carrier.name)
    refused: Artefact = await_that(
        lambda: next((one for one in _refused(side) if one.name not in known), None),
        "a refusal of what was changed",
        PATIENCE_SEC,
    )
    run = side.operator.await_end(side.operator.run(refused.dag_id, refused.run_id), PATIENCE_SEC)
    tasks = side.operator.tasks(run)
    stage.tell(f"  Z2: Airflow ran veen_import: {run.state}; nobody was even asked")
    after, reason = stage.heads(side, "import/"), _reason(side, refused)
    stage.claims.judge(
        "a carrier with one bit turned is refused, and nothing of it goes in",
        run.state == "failed"
        and tasks.get("judge") == "failed"
        and tasks.get("approve_1") == "skipped"
        and before == after,
        told=f"{changed}; {reason}",
        link=side.log_of(run),
    )


def _refused(side: Side) -> list[Artefact]:
    return [one for one in side.made("import") if one.state in ("refused", "quarantined")]


def _reason(side: Side, refused: Artefact) -> str:
    """As the newest word on the carrier has it: its state may have moved on meanwhile."""
    found = next((one for one in side.made("import") if one.name == refused.name), refused)
    told = found.summary.get("reason") or found.summary.get("told")
    return str(told or "no reason is told").splitlines()[0][:100]


def _carrier_of(stage: Stage, medium: Path, stream: str) -> Path:
    words = ("bridge", "verify", medium, "--trust", stage.offline.home.trust)
    for one in stage.words.veen(*words).document["carriers"]:
        if one["stream"] == stream:
            return Path(one["bags"][0])
    raise Refused(f"no carrier of {stream} is on {medium}")


def turn_one_bit(carrier: Path) -> str:
    """In the middle of a volume; both manifests are made to fit, as a forger would."""
    volume = max((carrier / "data").rglob("*"), key=lambda one: one.stat().st_size)
    raw = bytearray(volume.read_bytes())
    at = len(raw) // 2
    raw[at] ^= 0x01
    _replace(carrier, volume, bytes(raw))
    return f"bit 0 of byte {at} of {volume.name} was turned"


def _replace(carrier: Path, file: Path, raw: bytes) -> None:
    """Put other bytes there, and have whatever manifest tells of the file tell of these."""
    true, false = h(file.read_bytes()).hex(), h(raw).hex()
    file.chmod(0o600)
    file.write_bytes(raw)
    telling = [one for one in sorted(carrier.glob("*manifest-*.txt")) if true in one.read_text()]
    if not telling and file.parent != carrier:
        raise Refused(f"no manifest of {carrier} tells of {file.name}")
    for one in telling:
        _replace(carrier, one, one.read_text().replace(true, false).encode())
