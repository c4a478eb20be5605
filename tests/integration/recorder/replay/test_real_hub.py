"""Replay from a hub that runs as a process: windows, principals (I3), and a middle man who lies."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import cbor2
import pytest

from recorder.replay.output import form_named
from recorder.replay.plan import ReplayRequest, by_place, by_time
from support.client import man_in_the_middle
from support.hub import spec_objects
from support.long_form import LONG
from support.recorder import replay_hub
from veen.errors import VeenError

STREAM = "record/a"
COUNT = 12
ALL = ("record/a", "record/b")


def replayed(recorded: Any, folder: Path, requested: ReplayRequest, url: str = "") -> list[Any]:
    """By a reader who was never here before."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(recorded.folder / "reader", folder)
    with replay_hub.a_client(folder, url or recorded.hub.url) as client:
        job = replay_hub.a_job(client, requested, recorded.checkpoint)
        job.to_file(folder / "out.jsonl", form_named("jsonl"), resume=False)
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()][1:]


def test_windows_of_a_second_each_hold_what_was_recorded_then(
    recorded: Any, quick_path: Path
) -> None:
    whole = replayed(recorded, quick_path / "r", by_time(ALL, None, None))
    assert len(whole) == 2 * COUNT
    parts = []
    bounds = [0, *recorded.seconds[1:], recorded.seconds[-1] + 60]
    for start, end in pairwise(bounds):
        expected = by_time(ALL, start * 1000, end * 1000 - 1)
        parts += replayed(recorded, quick_path / "r", expected)
    assert parts == whole
    keys = [(item["hub_commit_time"], item["stream"], item["hub_commit_seq"]) for item in whole]
    assert keys == sorted(keys)


def test_events_of_a_principal_are_all_uses_of_its_client(recorded: Any, quick_path: Path) -> None:
    result = replayed(recorded, quick_path / "r", by_time(ALL, None, None))
    reader = recorded.hub.client()
    for principal in recorded.authors:
        events = {
            (item["stream"], item["receipt_id"])
            for item in result
            if item["kind"] == "event" and item["principal_id"] == principal.hex()
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
    return list(reader.read(reader.log(spec_objects.label_of(reader.hub_id, stream, 0))).entries)


class Forger:
    """A man in the middle who changes pages of a stream on their way."""

    def __init__(self, forge: Callable[[list[Any]], list[Any]]) -> None:
        self._forge = forge
        self.forged = 0

    def reply(self, middle: Any, request: Any) -> tuple[bytes, bool]:
        result = middle.ask(request.raw)
        if b" /v1/stream " in request.head and result.is_ok:
            answer = cbor2.loads(result.body)
            answer[5] = self._forge(answer[5])
            self.forged += 1
            body = cbor2.dumps(answer)
            head = b"HTTP/1.1 200 x\r\nContent-Type: application/cbor\r\n"
            return head + b"Content-Length: %d\r\n\r\n" % len(body) + body, True
        return result.raw, True


def drop(items: list[Any], k: int) -> list[Any]:
    return items[:k] + items[k + 1 :]


def drop_and_renumber(items: list[Any], k: int) -> list[Any]:
    stored = drop(items, k)
    return [{**item, 1: number} for number, item in enumerate(stored, 1)]


def swap(items: list[Any], k: int) -> list[Any]:
    other = (k + 1) % len(items)
    result = list(items)
    result[k], result[other] = {**items[other], 1: k + 1}, {**items[k], 1: other + 1}
    return result


def double(items: list[Any], k: int) -> list[Any]:
    return [*items[: k + 1], *items[k:]]


def substitute(items: list[Any], k: int) -> list[Any]:
    """The message of one place with the receipt of its own, and another's words."""
    result = [dict(item) for item in items]
    result[k][2] = items[(k + 3) % len(items)][2]
    return result


def change_body(items: list[Any], k: int) -> list[Any]:
    result = [dict(item) for item in items]
    msg = list(result[k][2])
    msg[8] = msg[8][:-1] + bytes([msg[8][-1] ^ 1])
    result[k][2] = msg
    return result


def backdate(items: list[Any], k: int) -> list[Any]:
    result = [dict(item) for item in items]
    receipt = list(result[k][3])
    receipt[5] -= 1
    result[k][3] = receipt
    return result


@pytest.fixture
def man(recorded: Any) -> Iterator[Any]:
    middle = man_in_the_middle.Middle(recorded.hub.port)
    yield middle
    middle.close()


def test_a_man_in_the_middle_who_does_nothing_changes_nothing(
    recorded: Any, man: Any, quick_path: Path
) -> None:
    man.plan = Forger(list)
    expected = by_place(STREAM, None, None)
    direct = replayed(recorded, quick_path / "r", expected)
    assert replayed(recorded, quick_path / "s", expected, man.url) == direct
    assert man.plan.forged


@pytest.mark.parametrize(
    "forge", [drop, drop_and_renumber, swap, double, substitute, change_body, backdate]
)
def test_no_place_can_be_changed_on_the_way(
    recorded: Any, man: Any, quick_path: Path, forge: Any
) -> None:
    for k in range(COUNT):
        man.plan = Forger(partial(forged_at, forge, k))
        message = refusal(recorded, quick_path, by_place(STREAM, None, None), man.url)
        assert f"{STREAM}, stream_seq " in message


def forged_at(forge: Callable[[list[Any], int], list[Any]], k: int, items: list[Any]) -> list[Any]:
    return forge(items, k)


def test_no_flipped_bit_of_a_page_passes(recorded: Any, man: Any, quick_path: Path) -> None:
    """Of the messages and receipts, that is: other flips may leave the meaning as it is."""
    chance = random.Random(7)
    for _ in range(400 if LONG else 40):
        k, field, at = chance.randrange(COUNT), chance.choice((2, 3)), chance.random()
        bit = 1 << chance.randrange(8)

        def flip(items: list[Any], k: int = k, field: int = field, at: float = at) -> list[Any]:
            raw = bytearray(cbor2.dumps(items[k][field]))
            raw[int(at * len(raw))] ^= bit  # noqa: B023 - used before the next turn
            result = [dict(item) for item in items]
            try:
                result[k][field] = cbor2.loads(bytes(raw))
            except (cbor2.CBORDecodeError, UnicodeDecodeError, ValueError):
                result[k][field] = bytes(raw)
            return result

        man.plan = Forger(flip)
        refusal(recorded, quick_path, by_place(STREAM, None, None), man.url)


def refusal(recorded: Any, folder: Path, requested: ReplayRequest, url: str) -> str:
    with pytest.raises(VeenError) as caught:
        replayed(recorded, folder / "r", requested, url)
    return "; ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
