"""The commands of the importing side: what they say, their exit codes, and being stopped (I31)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bridge.stream_map import OFFLINE_LOG
from support.bridge import bridge_world, importing_zone
from support.hub.hub_process import hub_in
from veen import captoken
from veen.client.client import Client
from veen.crypto import SigningKey
from veen.digest import h
from veen.keystore.directory import ClientDir
from veen.label import stream_id

pytestmark = pytest.mark.e2e

ISSUER = SigningKey(h(b"issuer"))

VEEN = [sys.executable, "-m", "cli.main", "bridge"]


def veen(zone: Any, *words: object, code: int = 0) -> Any:
    """A command with --json; what it printed."""
    command = [*VEEN, *map(str, words), "--config", str(zone.root / "bridge.toml"), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == code, (run.stdout, run.stderr)
    return json.loads(run.stdout)


def bring(zone: Any, *media: Path, code: int = 0, more: tuple[str, ...] = ()) -> Any:
    words = [word for medium in media for word in ("--medium", medium)]
    return veen(zone, "import", *words, *more, "--operator", zone.name, code=code)


def test_exit_codes_say_what_became_of_the_carriers(import_zone: Any) -> None:
    assert bring(import_zone, code=6)["carriers"] == []
    raw = import_zone.bundle(1, 3)
    first = import_zone.carry(raw)
    assert bring(import_zone, first)["imported_events"] == 3
    assert bring(import_zone, first, code=7)["carriers"][0]["state"] == "duplicate"
    behind = import_zone.medium(6, 7)
    (waiting,) = bring(import_zone, behind, code=8)["carriers"]
    assert "events 4 to 5" in waiting["detail"]
    bad = import_zone.medium(4, 4)
    (volume,) = bad.rglob("v001.agv")
    whole = volume.read_bytes()
    volume.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert bring(import_zone, bad, code=9)["carriers"][0]["code"] == "E.SIG/VOLUME"
    result = veen(import_zone, "status")
    assert result["streams"][0]["held"] == "1..3"
    assert [item["state"] for item in result["unfinished"]] == ["waiting"]
    bundle_id = bridge_world.bundle_id_of(raw).hex()
    receipt = veen(import_zone, "receipt", bundle_id[:8], "--svg", import_zone.root / "r.svg")
    assert len(receipt["words"].split()) == 6
    assert receipt["text"].count("\n") < 60
    assert (import_zone.root / "r.svg").read_text().startswith("<svg")
    gap = ("--accept-gap", waiting["bundle_id"][:16])
    bring(import_zone, code=1, more=gap)
    assert bring(import_zone, more=(*gap, "--reason", "disc lost"))["imported_events"] == 2
    import_zone.check([1, 2, 3, 6, 7])


def test_people_approve_with_identities_of_their_own(import_zone: Any) -> None:
    people = []
    for name in ("alice", "bob"):
        home = ClientDir(import_zone.root / name)
        home.create(now=int(time.time()), random=os.urandom, passphrase=None)
        people.append(home.read_card().client_id.hex())
    keys = ", ".join(f'"{person}"' for person in people)
    import_zone.write_settings(
        f'[[approvals]]\nprefix = "export/"\nneeded = 2\napprovers = [{keys}]\n'
    )
    (blocked,) = bring(import_zone, import_zone.medium(1, 2), code=12)["carriers"]
    bundle = blocked["bundle_id"][:12]
    assert (
        veen(import_zone, "approve", bundle, "--client", import_zone.root / "alice")["decision"]
        == "approve"
    )
    veen(import_zone, "approve", bundle, "--client", import_zone.root / "alice", code=4)
    veen(import_zone, "approve", "00000000", "--client", import_zone.root / "bob", code=4)
    assert bring(import_zone, code=6)["carriers"] == []
    veen(import_zone, "approve", bundle, "--client", import_zone.root / "bob")
    assert bring(import_zone)["imported_events"] == 2
    import_zone.check([1, 2])


def test_i19_an_audit_identity_that_may_not_write_stops_everything(tmp_path: Path) -> None:
    """A hub that asks for capabilities: the bridge has one, the audit identity not yet."""
    toml = f'reads = "open"\nissuers = ["{ISSUER.public.hex()}"]\n'
    with hub_in(tmp_path / "hub", toml) as hub:
        zone = importing_zone.Zone(tmp_path / "zone", hub, "gated")
        _grant(zone, "bridge", zone.target)
        medium = zone.medium(1, 3)
        outcomes = bring(zone, medium, code=10)
        assert (outcomes["imported_events"], outcomes["carriers"]) == (0, [])
        assert outcomes["audit_pending"]
        assert zone.imported() == []
        _grant(zone, "audit", OFFLINE_LOG)
        assert bring(zone)["imported_events"] == 3
        zone.check([1, 2, 3])


def _grant(zone: Any, name: str, stream: str) -> None:
    with Client.open(zone.root / name, zone.hub.url) as client:
        token = captoken.issue(
            ISSUER,
            subject_pk=client.session.identity.client_id,
            stream_ids=[stream_id(stream)],
            ttl=3600,
        )
        client.session.api.authorize(token)
    zone.capabilities[name] = zone.root / f"{name}.cap"
    zone.capabilities[name].write_bytes(token.encode())
    zone.write_settings()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_i31_a_run_that_is_asked_to_stop_says_so_and_is_finished_by_the_next(
    import_zone: Any, sent: signal.Signals
) -> None:
    hook = import_zone.root / "hook.py"
    hook.write_text("import time; print('scanning', flush=True); time.sleep(600)")
    import_zone.write_settings(importing=f'scan = ["{sys.executable}", "{hook}"]')
    command = [*VEEN, "import", "--config", str(import_zone.root / "bridge.toml")]
    command += ["--medium", str(import_zone.medium(1, 4)), "--operator", import_zone.name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(import_zone.import_dir.root.glob("staging/*/bundle.cbor")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(sent)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run veen bridge import again" in output
    import_zone.write_settings()
    assert bring(import_zone)["imported_events"] == 4
    import_zone.check([1, 2, 3, 4])
