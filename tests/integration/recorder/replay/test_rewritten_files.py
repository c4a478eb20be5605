"""Entries changed in the files of a stopped hub never pass a replay once it runs again (I2)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from recorder.replay.output import form_named
from recorder.replay.plan import by_place
from support.long_form import LONG
from support.recorder import replay_hub
from veen.digest import h
from veen.errors import VeenError
from veen.label import DEFAULT_PROFILE, EpochLabels, routing_key, stream_id
from veen.limits import Limits
from veen.log.chunk import read_entries
from veen.log.entry import Entry

COUNT = 12
Edit = Callable[[list["Framed"], int], None]


@dataclass
class Framed:
    label: bytes
    seq: int
    entry: Entry

    def encode(self) -> bytes:
        """With a frame as if it were right: its hash is made again."""
        return self.entry.encode(self.label, self.seq)


def flip(entries: list[Framed], k: int) -> None:
    """Another ciphertext, with the hash that goes with it: only the signature is missing."""
    msg = entries[k].entry.msg()
    text = msg.ciphertext[:-1] + bytes([msg.ciphertext[-1] ^ 1])
    forged = replace(msg, ciphertext=text, ct_hash=h(text))
    entries[k].entry = Entry(forged.encode(), entries[k].entry.receipt_bytes)


def drop(entries: list[Framed], k: int) -> None:
    del entries[k]


def swap(entries: list[Framed], k: int) -> None:
    other = k - 1 if k else k + 1
    entries[k].entry, entries[other].entry = entries[other].entry, entries[k].entry


def double(entries: list[Framed], k: int) -> None:
    entries.insert(k, entries[k])


def chunk_with(data: Path, hub_id: bytes, stream: str, seq: int) -> tuple[Path, list[Framed], int]:
    labels = EpochLabels(routing_key(hub_id), stream_id(stream), DEFAULT_PROFILE)
    for path in sorted((data / "log").glob(f"chunk-{labels.at(0).hex()}-*")):
        if path.suffix not in (".log", ".open"):
            continue
        entries = [
            Framed(header.label, header.stream_seq, entry)
            for _, header, entry in read_entries(path.read_bytes(), Limits())
        ]
        for k, framed in enumerate(entries):
            if framed.seq == seq and len(entries) > 1:
                return path, entries, k
    return chunk_with(data, hub_id, stream, seq - 1)


@pytest.mark.parametrize("edit", [flip, drop, swap, double])
def test_a_changed_file_is_never_replayed_as_if_it_were_whole(
    recorded: Any, quick_path: Path, edit: Edit
) -> None:
    places = [(2, 6), (1, 5), (7, 11), (12, 3)] if LONG else [(2, 6)]
    for number, (in_a, in_b) in enumerate(places):
        hub = replay_hub.a_copy(recorded.pristine, quick_path / f"hub-{number}")
        were: dict[str, tuple[Path, bytes]] = {}
        for stream, seq in (("record/a", in_a), ("record/b", in_b)):
            path, entries, k = chunk_with(hub.data, recorded.checkpoint.hub_id, stream, seq)
            were[stream] = path, path.read_bytes()
            edit(entries, k)
            path.write_bytes(b"".join(entry.encode() for entry in entries))
        try:
            if starts(hub):
                changed = [stream for stream in were if not is_mended(hub, *were[stream])]
                _assert_refused(recorded, hub, quick_path / f"reader-{number}", changed)
        finally:
            hub.destroy()


def is_mended(hub: Any, path: Path, was: bytes) -> bool:
    """What comes after the last entry is cut off by the hub, which says so: nothing is changed."""
    return path.read_bytes() == was and f" of {path.name}; no receipt" in hub.log.read_text()


def starts(hub: Any) -> bool:
    """A hub that will not start on such files is not silent about them."""
    try:
        hub.start()
    except AssertionError:
        assert "veen hub: " in hub.log.read_text()
        return False
    return True


def test_a_hub_does_not_start_on_a_log_that_lost_its_last_entry(
    recorded: Any, quick_path: Path
) -> None:
    hub = replay_hub.a_copy(recorded.pristine, quick_path / "hub")
    path, entries, k = chunk_with(hub.data, recorded.checkpoint.hub_id, "record/a", COUNT)
    drop(entries, k)
    path.write_bytes(b"".join(entry.encode() for entry in entries))
    try:
        assert not starts(hub)
    finally:
        hub.destroy()


def _assert_refused(recorded: Any, hub: Any, folder: Path, streams: list[str]) -> None:
    for stream in streams:
        shutil.copytree(recorded.folder / "reader", folder / stream)
        out = folder / stream / "out.jsonl"
        with replay_hub.a_client(folder / stream, hub.url) as client:
            job = replay_hub.a_job(client, by_place(stream, None, None), recorded.checkpoint)
            with pytest.raises(VeenError) as caught:
                job.to_file(out, form_named("jsonl"), resume=False)
        message = "; ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        assert f"{stream}, stream_seq " in message
        assert len(written(out)) < COUNT


def written(path: Path) -> list[Any]:
    """What had been proven before the refusal; the file may not be there at all."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()][1:]
