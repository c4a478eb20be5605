"""Outputs that were cut off anywhere go on to the very bytes that an undisturbed run writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from recorder.replay.job import OtherReplay
from recorder.replay.output import OutputExists, form_named
from recorder.replay.plan import ReplayRequest, by_place, by_time
from support.recorder import replay_notary
from veen.errors import Malformed, Untrusted
from veen.msg import Msg

FORMS = ("jsonl", "cbor")


@pytest.fixture
def paged_world(replay_world: Any) -> Any:
    """Pages of four, so that a stream has several of them, each with its proof."""
    replay_world.page_items = 4
    return replay_world


def whole(*, with_proofs: bool) -> ReplayRequest:
    return by_time(replay_notary.STREAMS, None, None, with_proofs=with_proofs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_proofs", [False, True])
def test_cut_off_anywhere_it_goes_on_to_the_same_bytes(
    paged_world: Any, form: str, with_proofs: bool
) -> None:
    expected, path = whole(with_proofs=with_proofs), paged_world.folder / "out"
    paged_world.job(expected).to_file(path, form_named(form), resume=False)
    undisturbed = path.read_bytes()
    records = ends(undisturbed, form)
    cuts = {0, 1, len(undisturbed), *records, *(record - 1 for record in records)}
    for cut in sorted(cut for cut in cuts if cut >= 0):
        path.write_bytes(undisturbed[:cut])
        paged_world.job(expected).to_file(path, form_named(form), resume=True)
        assert path.read_bytes() == undisturbed, f"cut at byte {cut}"


def ends(raw: bytes, form: str) -> list[int]:
    result, at = [], 0
    while at < len(raw):
        end = form_named(form).end(raw, at)
        assert end is not None
        result.append(end)
        at = end
    return result


def test_without_resume_nothing_is_overwritten(paged_world: Any) -> None:
    path = paged_world.folder / "out"
    path.write_bytes(b"precious")
    with pytest.raises(OutputExists, match="--resume"):
        paged_world.job(whole(with_proofs=False)).to_file(path, form_named("jsonl"), resume=False)
    with pytest.raises(OutputExists, match="expected a replay"):
        paged_world.job(whole(with_proofs=False)).to_file(path, form_named("jsonl"), resume=True)
    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize("form", FORMS)
def test_resume_refuses_the_output_of_another_replay(paged_world: Any, form: str) -> None:
    path = paged_world.folder / "out"
    paged_world.job(by_place("record/a", 1, 6)).to_file(path, form_named(form), resume=False)
    before = path.read_bytes()
    with pytest.raises(OtherReplay, match="to_seq was 6 and is 7"):
        paged_world.job(by_place("record/a", 1, 7)).to_file(path, form_named(form), resume=True)
    newer = replay_notary.checkpoint_of(paged_world.hub, ("record/a",))
    with pytest.raises(OtherReplay, match="was begun against checkpoint"):
        paged_world.job(by_place("record/a", 1, 6), chosen=newer).to_file(
            path, form_named(form), resume=True
        )
    assert path.read_bytes() == before


def test_resume_keeps_to_the_checkpoint_it_began_with(paged_world: Any) -> None:
    path, expected = paged_world.folder / "out", by_place("record/a", None, None)
    paged_world.job(expected).to_file(path, form_named("jsonl"), resume=False)
    undisturbed = path.read_bytes()
    path.write_bytes(undisturbed[: len(undisturbed) // 2])
    log, author = paged_world.hub.log("record/a"), replay_notary.Author(b"new")
    mine = paged_world.client.session.identity.card.recipient(replay_notary.NOON)
    log.append(author.msg(log, mine, b"\x01"), paged_world.hub.key)
    paged_world.checkpoint = replay_notary.checkpoint_of(paged_world.hub)
    paged_world.job(expected).to_file(path, form_named("jsonl"), resume=True)
    assert path.read_bytes() == undisturbed


def test_resume_refuses_an_output_in_which_something_is_missing(paged_world: Any) -> None:
    path, expected = paged_world.folder / "out", by_place("record/a", None, None)
    paged_world.job(expected).to_file(path, form_named("jsonl"), resume=False)
    lines = path.read_bytes().splitlines(keepends=True)
    for broken in (lines[:3] + lines[4:8], lines[:4] + lines[3:8], [*lines[:3], b"{}\n"]):
        path.write_bytes(b"".join(broken))
        with pytest.raises((Untrusted, Malformed)) as caught:
            paged_world.job(expected).to_file(path, form_named("jsonl"), resume=True)
        assert "byte" in "; ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_resume_refuses_where_the_log_has_another_message(paged_world: Any) -> None:
    path, expected = paged_world.folder / "out", by_place("record/a", None, None)
    paged_world.job(expected).to_file(path, form_named("jsonl"), resume=False)
    lines = path.read_bytes().splitlines(keepends=True)
    other = json.loads(lines[6])
    receipt = bytearray.fromhex(other["receipt"])
    receipt[45] ^= 1  # a bit of leaf_hash
    other["receipt"] = receipt.hex()
    path.write_bytes(b"".join(lines[:6]) + json.dumps(other).encode() + b"\n")
    with pytest.raises(Untrusted, match="record/a, stream_seq 6: the output has another"):
        paged_world.job(expected).to_file(path, form_named("jsonl"), resume=True)


def test_resume_of_a_whole_output_writes_nothing(paged_world: Any) -> None:
    path = paged_world.folder / "out"
    job = paged_world.job(whole(with_proofs=True))
    job.to_file(path, form_named("cbor"), resume=False)
    before = path.read_bytes()
    assert job.to_file(path, form_named("cbor"), resume=True).new == 0
    assert path.read_bytes() == before


SMALL_PARTS = {"part_rows": 5, "group_rows": 2}


def rows(folder: Path) -> list[dict[str, Any]]:
    parts = sorted(folder.glob("part-*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def test_parquet_has_the_same_events_in_the_same_order(paged_world: Any) -> None:
    expected, path, folder = (
        whole(with_proofs=False),
        paged_world.folder / "o",
        paged_world.folder / "p",
    )
    paged_world.job(expected).to_file(path, form_named("jsonl"), resume=False)
    paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=False)
    lines = [json.loads(line) for line in path.read_text().splitlines()][1:]
    result = rows(folder)
    assert [(item["stream"], item["hub_commit_seq"]) for item in result] == [
        (line["stream"], line["hub_commit_seq"]) for line in lines
    ]
    for row, line in zip(result, lines, strict=True):
        assert json.loads(row["payload"]) == line["payload"]
        assert row["receipt"].hex() == line["receipt"]
        assert row["receipt_id"] == line["receipt_id"]
        assert row["principal_id"].hex() == line["principal_id"]
        assert f"{row['event_time']:%Y-%m-%dT%H:%M:%S}" == line["event_time"][:19]
        assert row["proven"]


def test_parquet_cut_off_after_any_part_goes_on_to_the_same_parts(paged_world: Any) -> None:
    expected, folder = whole(with_proofs=False), paged_world.folder / "p"
    paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=False)
    undisturbed = {path.name: path.read_bytes() for path in folder.iterdir()}
    parts = sorted(item for item in undisturbed if item.startswith("part-"))
    assert len(parts) == 6
    for stored in range(len(parts)):
        for name in parts[stored:]:
            (folder / name).unlink()
        (folder / f".{parts[stored].removesuffix('.parquet')}.new").write_bytes(b"half a part")
        paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=True)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == undisturbed


def test_parquet_refuses_a_missing_or_foreign_part(paged_world: Any) -> None:
    expected, folder = whole(with_proofs=False), paged_world.folder / "p"
    paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=False)
    with pytest.raises(OutputExists):
        paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=False)
    (folder / "part-00000003.parquet").rename(folder / "part-00000009.parquet")
    with pytest.raises(Malformed, match="part 3 is missing"):
        paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=True)
    (folder / "part-00000002.parquet").write_bytes((folder / "part-00000001.parquet").read_bytes())
    (folder / "part-00000004.parquet").unlink()
    (folder / "part-00000005.parquet").unlink()
    (folder / "part-00000009.parquet").unlink()
    with pytest.raises(Malformed, match="items up to here"):
        paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=True)


def test_parquet_that_ends_in_a_refusal_keeps_whole_parts_only(paged_world: Any) -> None:
    expected, folder = by_place("record/a", None, None), paged_world.folder / "p"
    paged_world.hub.lie = lambda path, asked, answer: (
        b"\xa0" if path == "/v1/stream" and asked.from_seq > 8 else answer
    )
    with pytest.raises(Malformed):
        paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=False)
    assert sorted(path.name for path in folder.iterdir()) == [
        "part-00000000.parquet",
        "replay.cbor",
    ]
    paged_world.hub.lie = None
    paged_world.job(expected, **SMALL_PARTS).to_parts(folder, resume=True)
    assert [row["hub_commit_seq"] for row in rows(folder)] == list(range(1, 13))


def test_a_hub_that_changed_meanwhile_is_found_out_on_resume(paged_world: Any) -> None:
    path, expected = paged_world.folder / "out", by_place("record/a", None, None)
    paged_world.job(expected).to_file(path, form_named("jsonl"), resume=False)
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.rindex(b"\n", 0, len(raw) // 2) + 1])
    msgs = [Msg.decode(item) for item, _ in paged_world.hub.log("record/a").pairs]
    replay_notary.rebuilt(paged_world.hub, "record/a", [*msgs[:9], *msgs[10:]])
    with pytest.raises(Untrusted, match="record/a"):
        paged_world.job(expected).to_file(path, form_named("jsonl"), resume=True)
