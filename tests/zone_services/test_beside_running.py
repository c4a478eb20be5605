"""Commands beside the running services of two zones, as ``veen zone init`` makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from zone_processes import RunningZone, make_zone, running, until

from bridge.stream_map import IMPORTS
from cli.zone_people import HOSTS, HTTP

Pair = tuple[RunningZone, RunningZone]


@pytest.fixture(scope="module")
def zones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("beside")
    z1 = make_zone(folder / "z1")
    z2 = make_zone(folder / "z2", "offline", trust=z1.handover, medium=z1.root / "medium")
    with ExitStack() as closing:
        here, there = (closing.enter_context(running(one)) for one in (z1, z2))
        here.emit(6)
        here.emit(2, kind="login.failed", who="access")
        here.veen("recorder", "checkpoint", "create", *here.config)
        yield here, there


def items(file: Path) -> list[dict[str, Any]]:
    """The events of a replay."""
    lines = [json.loads(one) for one in file.read_text().splitlines()]
    return [one for one in lines if one["kind"] == "event"]


def replayed(zone: RunningZone, out: Path, *words: str | Path) -> list[dict[str, Any]]:
    zone.veen("recorder", "replay", *zone.config, "--out", out, *words)
    return items(out)


def acting(zone: RunningZone, name: str) -> tuple[str | Path, ...]:
    return "--client", zone.home.identity(name).root, "--principal", name


@pytest.mark.parametrize("who", ["admin", "auditor"])
def test_h25_identities_replay_content_while_the_service_runs(
    zones: Pair, tmp_path: Path, who: str
) -> None:
    z1, _ = zones
    words = ("--stream", HTTP, *acting(z1, who))
    found = replayed(z1, tmp_path / "replayed.jsonl", *words)
    assert [one["payload"] for one in found] == [{"n": n} for n in range(6)]


@pytest.fixture(scope="module")
def asked_in_z1(zones: Pair) -> dict[str, Any]:
    z1, _ = zones
    found = asked(z1, "--stream", HTTP, "--field", "payload.n")
    assert found["row_count"] == 6
    z1.veen("recorder", "checkpoint", "create", *z1.config)
    return found


@pytest.fixture(scope="module")
def imported(zones: Pair, asked_in_z1: dict[str, Any]) -> Pair:
    """What Z1 has recorded, exported and imported, with nothing prepared in either zone."""
    z1, z2 = zones
    assert asked_in_z1
    medium = z1.home.root / "medium"
    z1.veen("bridge", "export", *z1.config, "--medium", medium)
    done = z2.json("bridge", "import", *z2.config, "--medium", medium)
    assert (done["imported_events"], done["unrecorded"]) == (8 + 2, None)
    z2.emit(3, kind="host.started", who="hosts")
    z2.veen("recorder", "checkpoint", "create", *z2.config)
    return z1, z2


def test_h16_the_index_of_an_offline_zone_reads_imports_without_preparation(imported: Pair) -> None:
    z1, z2 = imported

    here, there = (one.home.zone().hub_id.hex() for one in (z2, z1))

    def is_taken_up() -> bool:
        rows = z2.index_status()["streams"]
        known = {(one["stream"], one["hub_id"]): one["indexed"] for one in rows}
        return known.get((f"import/{HTTP}", here)) == known.get((HTTP, there)) == 6

    until(is_taken_up, lambda: json.dumps(z2.index_status()))
    assert z2.index_status()["trouble"] is None


def test_h24_replay_in_z2_is_over_imports_beside_local_streams(
    imported: Pair, tmp_path: Path
) -> None:
    z1, z2 = imported
    out = tmp_path / "all.jsonl"
    found = replayed(z2, out, "--with-proofs")
    mine = [one for one in found if one["stream"] == f"import/{HTTP}"]
    assert [one["payload"] for one in mine] == [{"n": n} for n in range(6)]
    assert [one["source_commit_seq"] for one in mine] == list(range(1, 7))
    assert {one["source_stream"] for one in mine} == {HTTP}
    assert {one["source_hub_id"] for one in mine} == {z1.home.zone().hub_id.hex()}
    gateway = z1.home.identity("gateway").read_card().client_id.hex()
    assert {(one["principal_id"], one["origin"]) for one in mine} == {(gateway, "shop")}
    assert [one["payload"]["n"] for one in found if one["stream"] == HOSTS] == [0, 1, 2]
    z2.veen("recorder", "replay", *z2.config, "--verify", out)
    for form in ("cbor", "parquet"):
        z2.veen(
            "recorder", "replay", *z2.config, "--out", tmp_path / form, "--format", form,
            "--stream", f"import/{HTTP}",
        )  # fmt: skip


def asked(zone: RunningZone, *words: str) -> dict[str, Any]:
    """The digest of a query to the service of a zone, once its index has the last checkpoint."""
    until(zone.is_indexed, lambda: json.dumps(zone.index_status()))
    found: dict[str, Any] = zone.json("query", "submit", *zone.api, *words)
    return found


def proven(zone: RunningZone, result_id: str, package: Path) -> dict[str, Any]:
    """The verdict on the package of a result, checked offline; it must be proven."""
    zone.veen("query", "proof", result_id, *zone.api, "--out", package)
    recorder = zone.home.identity("service").read_card().client_id.hex()
    believed = ("--hub-id", zone.home.zone().hub_id.hex(), "--recorder-id", recorder)
    newest = ("--hub-identity", zone.home.hub)
    found: dict[str, Any] = zone.json("query", "verify", package, *believed, *newest)
    return found


def test_h24_a_query_in_z2_names_imports_and_local_streams(imported: Pair, tmp_path: Path) -> None:
    z1, z2 = imported
    scope = ("--stream", f"import/{HTTP}", "--stream", HOSTS)
    found = asked(z2, *scope, "--field", "*")
    assert found["row_count"] == 9
    lines = z2.veen("query", "result", found["result_id"], *z2.api).splitlines()
    rows = [json.loads(one) for one in lines if one.startswith("{")]
    mine = [one for one in rows if one["stream"] == f"import/{HTTP}"]
    assert [one["payload"] for one in mine] == [{"n": n} for n in range(6)]
    assert [one["hub_commit_seq"] for one in mine] == list(range(1, 7))
    assert [one["source_commit_seq"] for one in mine] == list(range(1, 7))
    assert {one["source_hub_id"] for one in mine} == {z1.home.zone().hub_id.hex()}
    assert {one["origin"] for one in mine} == {"shop"}
    local = [one for one in rows if one["stream"] == HOSTS]
    assert [one["source_stream"] for one in local] == [None] * 3
    verdict = proven(z2, found["result_id"], tmp_path / "package.json")
    assert verdict["outcome"] == "proven", verdict
    states = {one["claim"]: one["state"] for one in verdict["claims"]}
    assert states["rows_witnessed"] == states["evidence_hash"] == "held"


def test_h24_imports_are_filtered_by_the_time_of_their_origin(imported: Pair) -> None:
    """Everything was committed in Z1 before it was committed in Z2 (D42)."""
    _, z2 = imported
    words = ("--stream", f"import/{HTTP}", "--field", "source_commit_time", "--evidence", "none")
    found = asked(z2, *words)
    lines = z2.veen("query", "result", found["result_id"], *z2.api).splitlines()
    last = max(json.loads(one)["source_commit_time"] for one in lines if one.startswith("{"))
    assert asked(z2, *words, "--to", last)["row_count"] == 6
    later = last[:4].replace(last[:4], str(int(last[:4]) + 1)) + last[4:]
    assert asked(z2, *words, "--from", later)["row_count"] == 0


def test_h24_a_query_of_z1_is_run_again_in_z2_without_preparation(
    imported: Pair, asked_in_z1: dict[str, Any]
) -> None:
    """Request and result have crossed as exported streams (Query API 9.1)."""
    _, z2 = imported
    found = z2.json("query", "replay", *z2.config, "--result-id", asked_in_z1["result_id"])
    assert found["verdict"] == "matches"


def test_h24_each_import_leaves_an_event_of_its_own(imported: Pair, tmp_path: Path) -> None:
    _, z2 = imported
    found = replayed(z2, tmp_path / "imports.jsonl", "--stream", IMPORTS)
    writer = z2.home.identity("import-recorder").read_card().client_id.hex()
    assert {(one["event_type"], one["principal_id"]) for one in found} == {
        ("import.completed", writer)
    }
    told = {one["payload"]["import_stream"]: one["payload"] for one in found}
    assert (told[f"import/{HTTP}"]["import_from"], told[f"import/{HTTP}"]["import_to"]) == (1, 6)
    assert len(found) == len(told)
    again = z2.json("bridge", "import", *z2.config, "--only", "none", code=6)
    assert again["unrecorded"] is None


RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
_BOX = re.compile(r"^## ([^\n]+)$|^```shell\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_Z1 = ("An export does not end",)
OF_Z2 = ("A carrier is refused", "An import does not end", "The bridge has gaps")


def boxes() -> dict[str, str]:
    """The box about the bridge of each section that has one."""
    found, section = {}, ""
    for one in _BOX.finditer(RUNBOOK.read_text()):
        if one[1]:
            section = one[1]
        else:
            found[section] = one[2]
    return found


def test_every_box_about_the_bridge_is_run_here() -> None:
    assert sorted(boxes()) == sorted((*OF_Z1, *OF_Z2))


def test_h34_the_boxes_about_the_bridge_work_beside_running_zones(
    imported: Pair, tmp_path: Path
) -> None:
    for zone, sections in zip(imported, (OF_Z1, OF_Z2), strict=True):
        home = zone.home
        given = {
            "ZONE": str(home.file), "MEDIUM": str(home.zone().dags.medium),
            "TRUST": str(home.trust),
        }  # fmt: skip
        for section in sections:
            assert zone.script(boxes()[section], tmp_path, **given).strip(), section
