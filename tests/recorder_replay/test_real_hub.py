"""Replay from a hub that runs as a process: windows, principals (I3), and a middle man who lies."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import cbor2
import man_in_the_middle
import pytest
import replay_hub

from recorder.replay.output import form_named
from recorder.replay.wanted import Wanted, by_place, by_time
from veen.errors import VeenError

STREAM = "record/a"
COUNT = 12
ALL = ("record/a", "record/b")


def replayed(recorded: Any, folder: Path, wanted: Wanted, url: str = "") -> list[Any]:
    """By a reader who was never here before."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(recorded.folder / "reader", folder)
    with replay_hub.a_client(folder, url or recorded.hub.url) as client:
        job = replay_hub.a_job(client, wanted, recorded.checkpoint)
        job.to_file(folder / "out.jsonl", form_named("jsonl"), resume=False)
    return [json.loads(one) for one in (folder / "out.jsonl").read_text().splitlines()][1:]


def test_windows_of_a_second_each_hold_what_was_recorded_then(
    recorded: Any, quick_path: Path
) -> None:
    whole = replayed(recorded, quick_path / "r", by_time(ALL, None, None))
    assert len(whole) == 2 * COUNT
    parts = []
    bounds = [0, *recorded.seconds[1:], recorded.seconds[-1] + 60]
    for start, end in pairwise(bounds):
        wanted = by_time(ALL, start * 1000, end * 1000 - 1)
        parts += replayed(recorded, quick_path / "r", wanted)
    assert parts == whole
    keys = [(one["hub_commit_time"], one["stream"], one["hub_commit_seq"]) for one in whole]
    assert keys == sorted(keys)


def test_events_of_a_principal_are_all_uses_of_its_client(recorded: Any, quick_path: Path) -> None:
    found = replayed(recorded, quick_path / "r", by_time(ALL, None, None))
    reader = recorded.hub.client()
    for principal in recorded.authors:
        events = {
            (one["stream"], one["receipt_id"])
            for one in found
            if one["kind"] == "event" and one["principal_id"] == principal.hex()
        }
        used = {
            (stream, f"rcpt-{receipt[3].hex()}")
            for stream in ALL
            for msg, receipt in entries(reader, stream)
            if msg[3] == principal
        }
        assert events == used
        assert len(used) == COUNT


def entries(reader: Any, stream: str) -> list[Any]:
    """The log as a reader shows it who shares no code with us."""
    spec = __import__("spec_objects")
    return list(reader.read(reader.log(spec.label_of(reader.hub_id, stream, 0))).entries)


class Forger:
    """A man in the middle who changes pages of a stream on their way."""

    def __init__(self, forge: Callable[[list[Any]], list[Any]]) -> None:
        self._forge = forge
        self.forged = 0

    def reply(self, middle: Any, request: Any) -> tuple[bytes, bool]:
        found = middle.ask(request.raw)
        if b" /v1/stream " in request.head and found.is_ok:
            said = cbor2.loads(found.body)
            said[5] = self._forge(said[5])
            self.forged += 1
            body = cbor2.dumps(said)
            head = b"HTTP/1.1 200 x\r\nContent-Type: application/cbor\r\n"
            return head + b"Content-Length: %d\r\n\r\n" % len(body) + body, True
        return found.raw, True


def drop(items: list[Any], k: int) -> list[Any]:
    return items[:k] + items[k + 1 :]


def drop_and_renumber(items: list[Any], k: int) -> list[Any]:
    kept = drop(items, k)
    return [{**one, 1: number} for number, one in enumerate(kept, 1)]


def swap(items: list[Any], k: int) -> list[Any]:
    other = (k + 1) % len(items)
    found = list(items)
    found[k], found[other] = {**items[other], 1: k + 1}, {**items[k], 1: other + 1}
    return found


def double(items: list[Any], k: int) -> list[Any]:
    return [*items[: k + 1], *items[k:]]


def substitute(items: list[Any], k: int) -> list[Any]:
    """The message of one place with the receipt of its own, and another's words."""
    found = [dict(one) for one in items]
    found[k][2] = items[(k + 3) % len(items)][2]
    return found


def change_body(items: list[Any], k: int) -> list[Any]:
    found = [dict(one) for one in items]
    msg = list(found[k][2])
    msg[8] = msg[8][:-1] + bytes([msg[8][-1] ^ 1])
    found[k][2] = msg
    return found


def backdate(items: list[Any], k: int) -> list[Any]:
    found = [dict(one) for one in items]
    receipt = list(found[k][3])
    receipt[5] -= 1
    found[k][3] = receipt
    return found


@pytest.fixture
def man(recorded: Any) -> Iterator[Any]:
    found = man_in_the_middle.Middle(recorded.hub.port)
    yield found
    found.close()


def test_a_man_in_the_middle_who_does_nothing_changes_nothing(
    recorded: Any, man: Any, quick_path: Path
) -> None:
    man.plan = Forger(list)
    wanted = by_place(STREAM, None, None)
    direct = replayed(recorded, quick_path / "r", wanted)
    assert replayed(recorded, quick_path / "s", wanted, man.url) == direct
    assert man.plan.forged


@pytest.mark.parametrize(
    "forge", [drop, drop_and_renumber, swap, double, substitute, change_body, backdate]
)
def test_no_place_can_be_changed_on_the_way(
    recorded: Any, man: Any, quick_path: Path, forge: Any
) -> None:
    for k in range(COUNT):
        man.plan = Forger(lambda items, k=k: forge(items, k))
        said = refusal(recorded, quick_path, by_place(STREAM, None, None), man.url)
        assert f"{STREAM}, stream_seq " in said


def test_no_flipped_bit_of_a_page_passes(recorded: Any, man: Any, quick_path: Path) -> None:
    """Of the messages and receipts, that is: other flips may leave the meaning as it is."""
    chance = random.Random(7)
    for _ in range(400 if replay_hub.LONG else 40):
        k, field, at = chance.randrange(COUNT), chance.choice((2, 3)), chance.random()
        bit = 1 << chance.randrange(8)

        def flip(items: list[Any], k: int = k, field: int = field, at: float = at) -> list[Any]:
            raw = bytearray(cbor2.dumps(items[k][field]))
            raw[int(at * len(raw))] ^= bit  # noqa: B023 - used before the next turn
            found = [dict(one) for one in items]
            try:
                found[k][field] = cbor2.loads(bytes(raw))
            except (cbor2.CBORDecodeError, UnicodeDecodeError, ValueError):
                found[k][field] = bytes(raw)
            return found

        man.plan = Forger(flip)
        refusal(recorded, quick_path, by_place(STREAM, None, None), man.url)


def refusal(recorded: Any, folder: Path, wanted: Wanted, url: str) -> str:
    with pytest.raises(VeenError) as caught:
        replayed(recorded, folder / "r", wanted, url)
    return "; ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
