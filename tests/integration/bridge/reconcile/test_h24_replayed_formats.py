"""H24: what was imported, replayed as CBOR and as Parquet, and what a check says of each."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from support.bridge import importing_zone
from support.hub.hub_process import OPEN_TOML, hub_in
from veen.client.client import Client
from veen.client.credentials import Bearer
from veen.digest import h
from veen.keystore.directory import ClientDir

NAME, LAST = "formats", 9
TOKEN = "the token of the admin"
TOML = f"""{OPEN_TOML}
[[streams]]
name = "import/z1/{NAME}"
[[principals]]
name = "admin"
role = "recorder_admin"
token_sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"
read = ["*"]
"""
OK, INTEGRITY, REFUSED = 0, 3, 4
COMPARED = (
    "kind", "stream", "subject_id", "event_type", "hub_commit_seq", "receipt_id", "source_stream",
    "source_commit_seq", "source_receipt_id", "proven",
)  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """A zone with imported events under a checkpoint, and the command that replays them."""

    zone: Any
    checkpoint: Path
    veen: Callable[..., Any]

    def replay(self, form: str, out: Path, *more: str) -> None:
        reader = ("--hub", self.zone.hub.url, "--client", str(self.zone.reader_dir))
        what = ("--stream", self.zone.target, "--checkpoint", str(self.checkpoint))
        done = self.veen(
            "recorder", "replay", *reader, *what, "--format", form, "--out", str(out), *more
        )
        assert done.returncode == OK, done.stderr

    def verify(self, out: Path, code: int) -> Any:
        """The check of an output, offline."""
        data = self.zone.hub.data
        trust = ("--hub-id", self.zone.hub.client().hub_id.hex(), "--hub-identity", str(data))
        done = self.veen("recorder", "replay", "--verify", str(out), *trust, "--json")
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with hub_in(tmp_path_factory.mktemp("z2") / "hub", TOML) as result:
        yield result


@pytest.fixture
def imported(hub: Any, tmp_path: Path, run_veen: Callable[..., Any]) -> Imported:
    zone = importing_zone.Zone(tmp_path / "zone", hub, NAME)
    if not hub.__dict__.setdefault("has_imports", False):
        assert zone.states(zone.medium(1, LAST)) == ["imported"]
        hub.has_imports = True
    admin = ClientDir(tmp_path / "admin")
    admin.create(now=int(time.time()), random=os.urandom, passphrase=None)
    with Client.open(admin.root, hub.url, credentials=Bearer(TOKEN)) as client:
        client.meet()
        checkpoint = client.session.api.recorder_checkpoint(h(b"a profile"))
    path = tmp_path / "checkpoint.cbor"
    path.write_bytes(checkpoint.encode())
    return Imported(zone, path, run_veen)


def lines_of(path: Path) -> list[dict[str, Any]]:
    result = [json.loads(line) for line in path.read_text().splitlines()]
    return [item for item in result if item["kind"] == "event"]


def test_h24_a_cbor_replay_of_imports_is_checked(imported: Imported, tmp_path: Path) -> None:
    out = tmp_path / "out.cbor"
    imported.replay("cbor", out, "--with-proofs")
    result = imported.verify(out, OK)
    assert (result["proven"], result["unproven"], result["kinds"]) == (LAST, 0, {"event": LAST})
    assert result["streams"][0]["stream"] == imported.zone.target


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_h24_a_tampered_cbor_replay_of_imports_is_refused(
    imported: Imported, tmp_path: Path, share: float
) -> None:
    out = tmp_path / "out.cbor"
    imported.replay("cbor", out, "--with-proofs")
    raw = bytearray(out.read_bytes())
    raw[int(len(raw) * share)] ^= 1
    out.write_bytes(raw)
    assert imported.verify(out, INTEGRITY)["ok"] is False


def test_h24_a_cbor_replay_that_names_another_origin_is_refused(
    imported: Imported, tmp_path: Path
) -> None:
    """The origin's name as text, of the same length: nothing but its meaning has changed."""
    out = tmp_path / "out.cbor"
    imported.replay("cbor", out, "--with-proofs")
    name = imported.zone.world.stream.encode()
    raw = out.read_bytes()
    assert name in raw
    out.write_bytes(raw.replace(name, name[:-1] + b"X"))
    assert imported.verify(out, INTEGRITY)["ok"] is False


def test_h24_a_parquet_replay_of_imports_says_what_the_checked_one_says(
    imported: Imported, tmp_path: Path
) -> None:
    proven = tmp_path / "out.jsonl"
    imported.replay("jsonl", proven, "--with-proofs")
    assert imported.verify(proven, OK)["proven"] == LAST
    imported.replay("parquet", tmp_path / "out")
    (part,) = (tmp_path / "out").glob("part-*.parquet")
    rows = pq.read_table(part).to_pylist()
    due = [{name: line[name] for name in COMPARED} for line in lines_of(proven)]
    assert [{name: row[name] for name in COMPARED} for row in rows] == due
    assert [row["source_commit_seq"] for row in rows] == [*range(1, LAST + 1)]


def test_h24_a_parquet_replay_of_imports_is_never_called_proven(
    imported: Imported, tmp_path: Path
) -> None:
    """It has no place for proofs: neither as it was written nor changed does a check pass."""
    out = tmp_path / "out"
    imported.replay("parquet", out)
    assert "Parquet has no proofs" in imported.verify(out, REFUSED)["detail"]
    (part,) = out.glob("part-*.parquet")
    table = pq.read_table(part)
    forged = pa.array(["forged"] * len(table))
    at = table.schema.get_field_index("subject_id")
    pq.write_table(table.set_column(at, table.schema.field(at), forged), part)
    assert imported.verify(out, REFUSED)["ok"] is False
    # One file of it is no output either.
    assert imported.verify(part, INTEGRITY)["ok"] is False
