"""Commands beside the running services of two zones, as ``veen zone init`` makes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bridge.stream_map import IMPORTS
from support.paths import ROOT
from support.zone.zone_processes import RunningZone, make_zone, running, until
from zone.people import HOSTS, HTTP

Pair = tuple[RunningZone, RunningZone]


@pytest.fixture(scope="module")
def zones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("beside")
    z1 = make_zone(folder / "z1")
    z2 = make_zone(folder / "z2", "offline", trust=z1.handover, medium=z1.root / "medium")
    with ExitStack() as closing:
        here, there = (closing.enter_context(running(item)) for item in (z1, z2))
        here.emit(6)
        here.emit(2, kind="login.failed", who="access")
        here.veen("recorder", "checkpoint", "create", *here.config)
        yield here, there


def items(file: Path) -> list[dict[str, Any]]:
    """The events of a replay."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "event"]


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
    result = replayed(z1, tmp_path / "replayed.jsonl", *words)
    assert [item["payload"] for item in result] == [{"n": n} for n in range(6)]


@pytest.fixture(scope="module")
def asked_in_z1(zones: Pair) -> dict[str, Any]:
    z1, _ = zones
    question = asked(z1, "--stream", HTTP, "--field", "payload.n")
    assert question["row_count"] == 6
    z1.veen("recorder", "checkpoint", "create", *z1.config)
    return question


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

    here, there = (item.home.zone().hub_id.hex() for item in (z2, z1))

    def is_taken_up() -> bool:
        rows = z2.index_status()["streams"]
        known = {(row["stream"], row["hub_id"]): row["indexed"] for row in rows}
        return known.get((f"import/{HTTP}", here)) == known.get((HTTP, there)) == 6

    until(is_taken_up, lambda: json.dumps(z2.index_status()))
    assert z2.index_status()["trouble"] is None


def test_h24_replay_in_z2_is_over_imports_beside_local_streams(
    imported: Pair, tmp_path: Path
) -> None:
    z1, z2 = imported
    out = tmp_path / "all.jsonl"
    result = replayed(z2, out, "--with-proofs")
    mine = [item for item in result if item["stream"] == f"import/{HTTP}"]
    assert [item["payload"] for item in mine] == [{"n": n} for n in range(6)]
    assert [item["source_commit_seq"] for item in mine] == list(range(1, 7))
    assert {item["source_stream"] for item in mine} == {HTTP}
    assert {item["source_hub_id"] for item in mine} == {z1.home.zone().hub_id.hex()}
    gateway = z1.home.identity("gateway").read_card().client_id.hex()
    assert {(item["principal_id"], item["origin"]) for item in mine} == {(gateway, "shop")}
    assert [item["payload"]["n"] for item in result if item["stream"] == HOSTS] == [0, 1, 2]
    z2.veen("recorder", "replay", *z2.config, "--verify", out)
    for form in ("cbor", "parquet"):
        z2.veen(
            "recorder", "replay", *z2.config, "--out", tmp_path / form, "--format", form,
            "--stream", f"import/{HTTP}",
        )  # fmt: skip


def asked(zone: RunningZone, *words: str) -> dict[str, Any]:
    """The digest of a query to the service of a zone, once its index has the last checkpoint."""
    until(zone.is_indexed, lambda: json.dumps(zone.index_status()))
    result: dict[str, Any] = zone.json("query", "submit", *zone.api, *words)
    return result


def proven(zone: RunningZone, result_id: str, package: Path) -> dict[str, Any]:
    """The verdict on the package of a result, checked offline; it must be proven."""
    zone.veen("query", "proof", result_id, *zone.api, "--out", package)
    recorder = zone.home.identity("service").read_card().client_id.hex()
    believed = ("--hub-id", zone.home.zone().hub_id.hex(), "--recorder-id", recorder)
    newest = ("--hub-identity", zone.home.hub)
    result: dict[str, Any] = zone.json("query", "verify", package, *believed, *newest)
    return result


def test_h24_a_query_in_z2_names_imports_and_local_streams(imported: Pair, tmp_path: Path) -> None:
    z1, z2 = imported
    scope = ("--stream", f"import/{HTTP}", "--stream", HOSTS)
    question = asked(z2, *scope, "--field", "*")
    assert question["row_count"] == 9
    lines = z2.veen("query", "result", question["result_id"], *z2.api).splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    mine = [row for row in rows if row["stream"] == f"import/{HTTP}"]
    assert [item["payload"] for item in mine] == [{"n": n} for n in range(6)]
    assert [item["hub_commit_seq"] for item in mine] == list(range(1, 7))
    assert [item["source_commit_seq"] for item in mine] == list(range(1, 7))
    assert {item["source_hub_id"] for item in mine} == {z1.home.zone().hub_id.hex()}
    assert {item["origin"] for item in mine} == {"shop"}
    local = [row for row in rows if row["stream"] == HOSTS]
    assert [item["source_stream"] for item in local] == [None] * 3
    verdict = proven(z2, question["result_id"], tmp_path / "package.json")
    assert verdict["outcome"] == "proven", verdict
    states = {item["claim"]: item["state"] for item in verdict["claims"]}
    assert states["rows_witnessed"] == states["evidence_hash"] == "held"


def test_h24_imports_are_filtered_by_the_time_of_their_origin(imported: Pair) -> None:
    """Everything was committed in Z1 before it was committed in Z2 (D42)."""
    _, z2 = imported
    words = ("--stream", f"import/{HTTP}", "--field", "source_commit_time", "--evidence", "none")
    question = asked(z2, *words)
    lines = z2.veen("query", "result", question["result_id"], *z2.api).splitlines()
    last = max(json.loads(line)["source_commit_time"] for line in lines if line.startswith("{"))
    assert asked(z2, *words, "--to", last)["row_count"] == 6
    later = last[:4].replace(last[:4], str(int(last[:4]) + 1)) + last[4:]
    assert asked(z2, *words, "--from", later)["row_count"] == 0


def test_h24_a_query_of_z1_is_run_again_in_z2_without_preparation(
    imported: Pair, asked_in_z1: dict[str, Any]
) -> None:
    """Request and result have crossed as exported streams (Query API 9.1)."""
    _, z2 = imported
    result = z2.json("query", "replay", *z2.config, "--result-id", asked_in_z1["result_id"])
    assert result["verdict"] == "matches"


def test_h24_each_import_leaves_an_event_of_its_own(imported: Pair, tmp_path: Path) -> None:
    _, z2 = imported
    result = replayed(z2, tmp_path / "imports.jsonl", "--stream", IMPORTS)
    writer = z2.home.identity("import-recorder").read_card().client_id.hex()
    assert {(item["event_type"], item["principal_id"]) for item in result} == {
        ("import.completed", writer)
    }
    detail = {item["payload"]["import_stream"]: item["payload"] for item in result}
    assert (detail[f"import/{HTTP}"]["import_from"], detail[f"import/{HTTP}"]["import_to"]) == (
        1,
        6,
    )
    assert len(result) == len(detail)
    again = z2.json("bridge", "import", *z2.config, "--only", "none", code=6)
    assert again["unrecorded"] is None


RUNBOOK = ROOT / "docs" / "runbook.md"
_BOX = re.compile(r"^## ([^\n]+)$|^```shell\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OF_Z1 = ("An export does not end",)
OF_Z2 = ("A carrier is refused", "An import does not end", "The bridge has gaps")


def boxes() -> dict[str, str]:
    """The box about the bridge of each section that has one."""
    result, section = {}, ""
    for item in _BOX.finditer(RUNBOOK.read_text()):
        if item[1]:
            section = item[1]
        else:
            result[section] = item[2]
    return result


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
