"""``veen query`` against a running service, and its packages checked and replayed offline."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.errors import Unproven
from cli.main import app
from support.recorder import query_world
from veen.errors import Malformed, Refused, Untrusted, VeenError
from zone.services import free_port

Veen = Callable[..., Any]


@pytest.fixture
def veen(query_zone: Any, tmp_path: Path) -> Veen:
    """A command, with ``--json``; the document it printed, or the documents of its lines."""
    (tmp_path / "token").write_text(query_world.TOKENS["alice"])

    def run(*words: object, asks: bool = True) -> Any:
        who = ["--api", query_zone.url, "--token-file", str(tmp_path / "token")] if asks else []
        result = Context().run(
            CliRunner().invoke, app, [*map(str, words), *who, "--json"], env={"NO_PROXY": "*"}
        )
        if isinstance(result.exception, VeenError):
            raise result.exception
        assert result.exit_code in (0, 3, 6), result.output
        try:
            return json.loads(result.stdout) | {"exit_code": result.exit_code}
        except ValueError:
            return [json.loads(line) for line in result.stdout.splitlines()]

    return run


@pytest.fixture
def package(veen: Veen, tmp_path: Path) -> Path:
    """The proof of a query that the events of one subject answer."""
    words = ("--stream", "record/app/http", "--subject", "user:2", "--field", "payload.number")
    result = veen("query", "submit", *words, "--reason", "drill")
    assert result["status"] == "completed"
    assert result["row_count"] == 7
    veen("query", "proof", result["result_id"], "--out", tmp_path / "proof.json")
    return tmp_path / "proof.json"


def test_rows_are_compared_with_the_digest(veen: Veen) -> None:
    result = veen("query", "submit", "--stream", "record/app/auth", "--evidence", "none")
    rows = veen("query", "result", result["result_id"])
    assert len(rows) == result["row_count"] == 10
    some = veen("query", "result", result["result_id"], "--offset", 8)
    assert [item["row"] for item in some] == [row["row"] for row in rows[8:]]
    assert veen("query", "status", result["result_id"])["status"] == "completed"


def test_a_client_signs_its_requests(query_zone: Any, veen: Veen) -> None:
    """The principal's key is another's here: the service sees that, and the command says so."""
    query_zone.make_client("stranger")
    who = (
        "--api",
        query_zone.url,
        "--client",
        query_zone.folder / "stranger",
        "--principal",
        "signer",
    )
    with pytest.raises(VeenError, match="unauthorized"):
        veen("query", "status", "r-" + "0" * 32, *who, asks=False)
    signer = (
        "--api",
        query_zone.url,
        "--client",
        query_zone.folder / "clerk",
        "--principal",
        "clerk",
    )
    with pytest.raises(VeenError, match="query_not_found"):
        veen("query", "status", "r-" + "0" * 32, *signer, asks=False)


def test_a_refusal_says_its_code(veen: Veen) -> None:
    with pytest.raises(VeenError, match="forbidden_scope"):
        veen("query", "submit", "--stream", "record/secret")
    with pytest.raises(VeenError, match="query_not_found"):
        veen("query", "status", "r-" + "0" * 32)


def trust_of(zone: Any) -> tuple[str, ...]:
    return (
        *("--hub-id", zone.hub_id.hex(), "--recorder-id", zone.reader.client_id.hex()),
        *("--hub-identity", str(zone.hub.data)),
    )


def test_a_package_holds_offline_and_a_changed_one_does_not(
    query_zone: Any, veen: Veen, package: Path
) -> None:
    trust = trust_of(query_zone)
    result = veen("query", "verify", package, *trust, asks=False)
    assert (result["holds"], result["outcome"], result["exit_code"]) == (True, "proven", 0)
    document = json.loads(package.read_bytes())
    document["rows"]["whole"][0]["payload.number"] += 1
    forged = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    package.write_text(forged)
    result = veen("query", "verify", package, *trust, asks=False)
    assert (result["ok"], result["outcome"], result["exit_code"]) == (False, "failed", 3)
    other = veen("query", "verify", package, "--hub-id", "ab" * 32, asks=False)
    assert other["holds"] is False


def test_h01_an_unproven_package_has_its_own_exit_code_and_says_why_first(
    query_zone: Any, veen: Veen, package: Path
) -> None:
    trust = trust_of(query_zone)
    unnamed = veen("query", "verify", package, *trust[:2], asks=False)
    assert (unnamed["ok"], unnamed["outcome"], unnamed["exit_code"]) == (False, "unproven", 6)
    document = json.loads(package.read_bytes()) | {"request": None, "result": None}
    package.write_text(
        json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    )
    words = ["query", "verify", str(package), *trust]
    text = Context().run(CliRunner().invoke, app, words)
    assert isinstance(text.exception, Unproven)
    first = text.stdout.splitlines()[0]
    assert first.startswith("unproven: request_recorded: the package has no event of record/query")
    assert first.endswith("completeness unproven: rows may be missing")


def test_h22_a_service_refuses_an_address_that_another_serves(query_zone: Any, veen: Veen) -> None:
    veen("query", "submit", "--stream", "record/app/auth", "--evidence", "none")
    metrics = set((query_zone.folder / "results").rglob("*.db"))
    assert metrics
    with pytest.raises(Refused, match=r"cannot listen on .* change listen of \[query\]"):
        veen("recorder", "serve", "--config", query_zone.config, asks=False)
    assert metrics <= set((query_zone.folder / "results").rglob("*.db"))


def test_h01_a_file_that_is_no_package_is_named(
    query_zone: Any, veen: Veen, tmp_path: Path
) -> None:
    junk = tmp_path / "junk.json"
    junk.write_text("{}\n")
    with pytest.raises(Malformed, match=f"{junk}: expected a proof package as veen query proof"):
        veen("query", "verify", junk, *trust_of(query_zone), asks=False)


def test_h02_an_identity_of_another_hub_is_reported_as_such(
    query_zone: Any, veen: Veen, package: Path
) -> None:
    given = dict(zip(trust_of(query_zone)[::2], trust_of(query_zone)[1::2], strict=True))
    other = given | {"--hub-id": "ab" * 32}
    words = [word for pair in other.items() for word in pair]
    expected = f"is of hub {given['--hub-id']}, expected {other['--hub-id']}"
    with pytest.raises(Untrusted, match=expected):
        veen("query", "verify", package, *words, asks=False)


def test_a_replay_finds_the_same_digest(query_zone: Any, veen: Veen, package: Path) -> None:
    result = veen("query", "replay", package, "--config", query_zone.config, asks=False)
    assert (result["verdict"], result["exit_code"]) == ("matches", 0)


def test_a_replay_names_what_is_missing_here(
    query_zone: Any, veen: Veen, package: Path, tmp_path: Path
) -> None:
    index = _copied(query_zone, tmp_path)
    with closing(sqlite3.connect(index / "current" / "index.sqlite")) as db:
        db.execute("UPDATE streams SET position = 20 WHERE name = 'record/app/http'")
        db.commit()
    result = veen(
        "query", "replay", package, "--config", query_zone.config, "--index", index, asks=False
    )
    assert (result["verdict"], result["exit_code"]) == ("differs", 3)
    assert result["missing"] == [{"stream": "record/app/http", "from_seq": 21, "to_seq": 50}]


def test_a_replay_over_tampered_messages_is_refused(
    query_zone: Any, veen: Veen, package: Path, tmp_path: Path
) -> None:
    index = _copied(query_zone, tmp_path)
    with closing(sqlite3.connect(index / "current" / "index.sqlite")) as db:
        places = db.execute(
            "SELECT place FROM events WHERE event_type = 'http.request' ORDER BY place LIMIT 2"
        ).fetchall()
        (first,), (second,) = places
        db.execute(
            "UPDATE pairs SET (msg, receipt, body_key) = "
            "(SELECT msg, receipt, body_key FROM pairs WHERE place = ?) WHERE place = ?",
            (second, first),
        )
        db.commit()
    with pytest.raises(Untrusted):
        veen(
            "query", "replay", package, "--config", query_zone.config, "--index", index, asks=False
        )


def test_a_verdict_is_recorded(query_zone: Any, veen: Veen, package: Path, tmp_path: Path) -> None:
    words = ("--config", query_zone.config, "--client", query_zone.folder / "auditor", "--record")
    query_zone.make_client("auditor")
    result = veen("query", "replay", package, *words, asks=False)
    assert result["verdict"] == "matches"
    assert result["record_event"]["stream"] == "record/query/replays"
    assert result["record_event"]["seq"] == 1


def _copied(zone: Any, tmp_path: Path) -> Path:
    """The index as it stands now, for a test to harm."""
    target = tmp_path / "index"
    current = (zone.folder / "index" / "current").resolve()
    (target / current.name).mkdir(parents=True)
    shutil.copytree(current / "nodes", target / current.name / "nodes")
    with (
        closing(sqlite3.connect(current / "index.sqlite")) as source,
        closing(sqlite3.connect(target / current.name / "index.sqlite")) as copy,
    ):
        source.backup(copy)
    (target / "current").symlink_to(current.name)
    return target


def test_a_service_that_cannot_start_does_not_say_that_it_serves(
    query_zone: Any, tmp_path: Path
) -> None:
    """Its identity is held by the service that runs; the address is another."""
    config, log, port = query_zone.folder / "second.toml", tmp_path / "log", free_port()
    text = query_zone.config.read_text().replace(f":{query_zone.port}", f":{port}")
    config.write_text(text.replace('results = "results"', 'results = "second"'))
    command = [sys.executable, "-m", "cli.main", "recorder", "serve", "--config", str(config)]
    with log.open("wb") as file:
        done = subprocess.run(command, stdout=file, stderr=file, check=False, timeout=60)
    assert done.returncode == 4
    assert "is in use by" in log.read_text()
    assert "serving" not in log.read_text()


def test_a_service_says_that_it_serves_once_it_takes_connections(
    make_query_zone: Callable[..., Any], query_hub: Any
) -> None:
    zone = make_query_zone(query_hub, workers=1)
    zone.launch("recorder", "serve")
    detail = f"serving queries on {zone.url}; stop with Ctrl-C"
    query_world.wait_until(lambda: detail in zone.log.read_text(), detail)
    socket.create_connection(("127.0.0.1", zone.port), timeout=10).close()
    zone.stop()
