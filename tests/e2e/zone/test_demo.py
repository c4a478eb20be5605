"""``make demo``, once, as anybody runs it; and its judges, who must be able to say no."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.demo import workload
from cli.demo.scenes import turn_one_bit
from cli.demo.zones import Claims, table
from cli.errors import INTERRUPTED
from hub import settings as hub_settings
from recorder import settings as recorder_settings
from veen.digest import h
from veen.errors import Refused
from veen.system.child_process import below
from zone.directory import ZoneHome

LIMIT_SEC = 3_000
EARLY = "z1: hub: ready"
LATER = [
    "two zones start",
    "Airflow of Z1 makes a checkpoint",
    "somebody carries the medium",
    "waits for a person",
    "$ veen query submit",
]
COMMAND = [sys.executable, "-P", "-m", "cli.main", "demo"]


def test_a_claim_that_does_not_hold_is_shown_and_counted() -> None:
    claims = Claims()
    claims.judge("one", True, detail="seen", link="/a")
    claims.judge("two", False, detail="not seen", link="/b")
    assert [item.says for item in claims.broken] == ["two"]
    assert "two  NO    not seen" in "\n".join(table(claims.judged))


def test_the_workload_is_the_same_for_the_same_seed() -> None:
    counts = {"gateway": 40, "access": 30, "hosts": 20}
    events = workload.events(5, 1_000, counts)
    assert events == workload.events(5, 1_000, counts)
    assert events != workload.events(6, 1_000, counts)
    assert {name: len(lines) for name, lines in events.items()} == counts


def test_one_bit_is_turned_and_the_manifests_made_to_fit(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    volume, manifest = tmp_path / "data" / "v1", tmp_path / "manifest-sha256.txt"
    volume.write_bytes(b"events")
    manifest.write_text(f"{h(b'events').hex()}  data/v1\n")
    tags = tmp_path / "tagmanifest-sha256.txt"
    tags.write_text(f"{h(manifest.read_bytes()).hex()}  {manifest.name}\n")
    turn_one_bit(tmp_path)
    changed = volume.read_bytes()
    assert sum((a ^ b).bit_count() for a, b in zip(changed, b"events", strict=True)) == 1
    assert manifest.read_text() == f"{h(changed).hex()}  data/v1\n"
    assert tags.read_text() == f"{h(manifest.read_bytes()).hex()}  {manifest.name}\n"


def test_refuses_to_remove_what_no_demonstration_left(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    done = subprocess.run([*COMMAND, "--directory", str(tmp_path), "--again"], check=False)
    assert done.returncode == 4
    assert (tmp_path / "mine").read_text() == "precious"


def processes_in(folder: Path) -> list[str]:
    """Command lines of whatever still works there."""
    result = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                words = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                place = str((entry / "cwd").readlink())
            except OSError:
                continue
            if str(folder) in words or place.startswith(str(folder)):
                result.append(words)
    return result


def taken(folder: Path) -> list[str]:
    """Addresses of the zones there on which somebody listens."""
    homes = [ZoneHome(path.parent) for path in folder.glob("*/veen.toml")]
    assert len(homes) == 2
    places = [
        listen
        for home in homes
        for listen in (
            hub_settings.load(home.file).listen,
            recorder_settings.load(home.file).query.listen,
            home.zone().airflow.listen,
        )
    ]
    return [place for place in places if listens(place)]


def listens(place: str) -> bool:
    host, _, port = place.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@contextmanager
def demonstration(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """In a group of its own, as a shell starts it; it does not outlive the block."""
    begun = subprocess.Popen(
        [*COMMAND, "--directory", str(folder), *more], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with begun:
        try:
            yield begun
        finally:
            if begun.poll() is None:
                begun.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("store", ["files", pytest.param("s3", marks=pytest.mark.long)])
@pytest.mark.timeout(LIMIT_SEC)
def test_every_claim_of_the_demonstration_holds(tmp_path: Path, store: str) -> None:
    folder = tmp_path / "demo"
    with demonstration(folder, "--store", store, "--json") as done:
        out, err = done.communicate(timeout=LIMIT_SEC - 60)
    assert done.returncode == 0, (out, err)
    document = json.loads(out)
    assert [item["says"] for item in document["claims"] if not item["holds"]] == []
    assert len(document["claims"]) >= 20
    (by_airflow,) = (
        item for item in document["claims"] if item["says"].startswith("Airflow had Spark")
    )
    assert "/dag_id=veen_query/run_id=r-" in by_airflow["link"]
    for item in document["claims"]:
        if item["link"].startswith("/"):
            assert Path(item["link"]).exists(), item
    assert processes_in(folder) == []
    assert taken(folder) == []


@pytest.mark.parametrize(
    "moment", [EARLY, *(pytest.param(item, marks=pytest.mark.long) for item in LATER)]
)
@pytest.mark.timeout(LIMIT_SEC)
def test_ctrl_c_stops_all_of_it_and_says_so(tmp_path: Path, moment: str) -> None:
    """A terminal sends it to everyone in the group."""
    folder = tmp_path / "demo"
    with demonstration(folder) as begun:
        assert begun.stderr is not None
        assert any(moment in line for line in begun.stderr)
        those = below(begun.pid)
        os.killpg(begun.pid, signal.SIGINT)
        out, err = begun.communicate(timeout=LIMIT_SEC - 60)
    assert (begun.returncode, out) == (INTERRUPTED, "")
    assert err.rstrip().splitlines()[-1].startswith("interrupted: all that was started is stopped")
    assert "Traceback" not in err
    assert [item for item in those if item.is_alive()] == []
    assert processes_in(folder) == []
    assert taken(folder) == []


def test_the_judges_are_not_asked_to_believe(tmp_path: Path) -> None:
    """A carrier without a manifest line for its volume is no carrier to play with."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "v1").write_bytes(b"events")
    (tmp_path / "manifest-sha256.txt").write_text("")
    with pytest.raises(Refused, match="lists v1"):
        turn_one_bit(tmp_path)
