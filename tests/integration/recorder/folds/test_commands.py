"""``veen fold`` and ``veen snapshot`` as an operator runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.hub import hub_process
from support.overlay.overlay_histories import cbor, named
from veen.client.client import Client
from veen.keystore.directory import ClientDir
from veen.objects.files import FileRetention, StoreLayout
from veen.overlay.crdt import GCOUNTER_SCHEMA
from veen.overlay.snapshot import StateCheckpoint

pytestmark = pytest.mark.e2e

NAME = "wallet.ledger"
Run = subprocess.CompletedProcess[str]
OK, USAGE, INTEGRITY, REFUSED = 0, 1, 3, 4


def veen(*words: object, **environment: str) -> Run:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *map(str, words)],
        capture_output=True, text=True, check=False, timeout=240, stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )  # fmt: skip


def detail(done: Run, code: int = OK) -> dict[str, Any]:
    assert done.returncode == code, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture
def at(archived: Any, reader: Any) -> tuple[object, ...]:
    store = ("--store", archived.folder.as_uri(), "--hub-id", archived.hub.hub_id.hex())
    return (*store, "--stream", "ledger", "--client", reader.root, "--block", 8)


def test_a_fold_says_what_it_is_of(archived: Any, at: tuple[object, ...]) -> None:
    result = archived.fold(archived.job("ledger", NAME, block=8, from_seq=3, to_seq=140))
    shown = detail(veen("fold", NAME, *at, "--from", 3, "--to", 140, "--json"))
    assert shown["digest"] == result.digest().hex()
    assert (shown["label"], shown["from"], shown["to"]) == (result.label.hex(), 3, 140)
    assert shown["mmr_root"] == result.mmr_root.hex()
    assert shown["state"] == result.known().document(result.opened().state)
    skipped = result.opened().skipped
    assert shown["skipped"] == {
        "foreign": skipped.foreign.count,
        "malformed": skipped.malformed.count,
        "unopened": skipped.unopened.count,
    }


def test_one_account_is_shown_alone(archived: Any, at: tuple[object, ...]) -> None:
    whole = archived.fold(archived.job("ledger", NAME, block=8)).opened().state
    account = whole.accounts[0].account
    shown = detail(veen("fold", NAME, *at, "--account", account.hex(), "--json"))
    assert list(shown["state"]["accounts"]) == [account.hex()]
    text = veen("fold", NAME, *at, "--account", account.hex())
    assert account.hex() in text.stdout
    assert "read 150 events" in text.stderr


def test_a_wrong_summary_is_named_and_dropped(archived: Any, at: tuple[object, ...]) -> None:
    due = detail(veen("fold", NAME, *at, "--summaries", "--json"))
    key = max(key for key in archived.summaries() if "/8/4/" in key)
    FileRetention(StoreLayout(archived.folder)).delete(key)
    archived.store.objects.put(key, b"junk")
    refused = detail(veen("fold", NAME, *at, "--summaries", "--json"), INTEGRITY)
    assert refused["detail"].startswith(key)
    assert "--drop-summaries" in refused["detail"]
    again = veen("fold", NAME, *at, "--summaries", "--drop-summaries", "--json")
    assert detail(again) == due


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("fold", "chess"), REFUSED),
        (("fold", NAME, "--to", 151), REFUSED),
        (("fold", NAME, "--stream", "elsewhere"), REFUSED),
        (("fold", NAME, "--account", "me"), USAGE),
        (("snapshot", "create", "--overlay", NAME), USAGE),
        (("snapshot", "verify"), USAGE),
    ],
)
def test_what_cannot_be_done_is_reported(
    at: tuple[object, ...], words: tuple[object, ...], code: int
) -> None:
    done = veen(*words[:2], *at, *words[2:])
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.startswith("veen: ")
    assert "Traceback" not in done.stderr


def test_spark_shows_the_same_document(at: tuple[object, ...]) -> None:
    here = veen("fold", NAME, *at, "--json")
    there = veen("fold", NAME, *at, "--json", "--engine", "spark", "--master", "local[2]")
    assert detail(there) == detail(here)
    assert there.stdout == here.stdout


@pytest.mark.long
def test_spark_says_why_it_cannot(at: tuple[object, ...], archived: Any, tmp_path: Path) -> None:
    claim = archived.fold(archived.job("ledger", NAME)).prefix().checkpoint(bytes(32))
    (tmp_path / "s").write_bytes(replace(claim, mmr_root=bytes(32)).encode())
    words = ("snapshot", "verify", *at, "--snapshot", tmp_path / "s", "--json")
    there = veen(*words, "--engine", "spark", "--master", "local[2]")
    assert detail(there, INTEGRITY)["first_mismatch"]["field"] == "mmr_root"
    assert detail(there, INTEGRITY) == detail(veen(*words), INTEGRITY)
    summaries = veen("fold", NAME, *at, "--summaries", "--json")
    assert summaries.returncode == OK
    key = max(key for key in archived.summaries() if "/8/4/" in key)
    FileRetention(StoreLayout(archived.folder)).delete(key)
    archived.store.objects.put(key, b"junk")
    refused = veen("fold", NAME, *at, "--summaries", "--json", "--engine", "spark")
    assert key in detail(refused, INTEGRITY)["detail"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Any]:
    process = hub_process.HubProcess(tmp_path, *hub_process.OPEN)
    yield process.start()
    process.destroy()


def test_a_snapshot_is_sent_found_and_verified(
    hub: Any, memory_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    me, store = tmp_path / "me", memory_folder("store").as_uri()
    ClientDir(me).create(now=int(time.time()), random=os.urandom, passphrase=None)
    with Client.open(me, hub.url) as client:
        bodies = [_increment(number) for number in range(12)]
        list(client.send_many("count", bodies, schema=GCOUNTER_SCHEMA))
    push = ("archive", "push", "--data-dir", hub.data, "--store", store, "--json")
    at = ("--store", store, "--client", me, "--stream", "count", "--json")
    detail(veen(*push))
    sent = detail(
        veen("snapshot", "create", *at, "--overlay", "counter.map", "--upto", 10,
             "--into", "states", "--hub", hub.url)
    )  # fmt: skip
    assert (sent["sent_to"], sent["sent_as"], sent["upto_stream_seq"]) == ("states", 1, 10)
    detail(veen(*push))
    result = detail(veen("snapshot", "verify", *at, "--in", "states", "--upto", 10))
    assert (result["consistent"], result["state_hash"]) == (True, sent["state_hash"])
    assert veen("snapshot", "verify", *at, "--in", "states", "--upto", 11).returncode == REFUSED
    file = tmp_path / "s"
    detail(veen("snapshot", "create", *at, "--overlay", "counter.map", "--out", file))
    claim = StateCheckpoint.decode(file.read_bytes())
    assert claim.upto_stream_seq == 12
    file.write_bytes(replace(claim, state_hash=bytes(32)).encode())
    refused = detail(veen("snapshot", "verify", *at, "--snapshot", file), INTEGRITY)
    assert refused["first_mismatch"]["field"] == "state_hash"
    plain = veen("snapshot", "verify", *at[:-1], "--snapshot", file)
    assert plain.returncode == INTEGRITY
    assert "state_hash: expected" in plain.stderr
    assert "got 0000" in plain.stderr


def _increment(number: int) -> bytes:
    result: bytes = cbor({"shard": named("shard", number % 3), "delta": number})
    return result
