"""Many writers at once on one label, and many hubs at once on one directory."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from support.hub import spec_objects

RACES = 200
WRITERS = 6
STREAM = "record/a"


def test_writers_of_one_label_get_one_sequence(open_hub: Any) -> None:
    barrier = Barrier(WRITERS)

    def race(number: int) -> list[list[Any]]:
        client = open_hub.client()
        writer = client.writer(spec_objects.key(f"writer {number}"), STREAM)
        receipts = []
        for n in range(RACES):
            msg = writer.msg(b"%d" % n)
            barrier.wait(60)
            receipts.append(client.submit(msg))
        return receipts

    with ThreadPoolExecutor(WRITERS) as threads:
        promised = list(threads.map(race, range(WRITERS)))
    client = open_hub.client()
    log = client.read(client.log(promised[0][0][1]))
    assert log.mmr.size == RACES * WRITERS
    for receipts in promised:
        assert receipts == sorted(receipts, key=lambda item: item[2])
        assert all(log.entries[receipt[2] - 1][1] == receipt for receipt in receipts)
    _refuse_disorder(log)


def test_one_of_two_with_the_same_key_and_number_wins(open_hub: Any, refusal: type[Any]) -> None:
    """Each round both submit a message of their own under one client_seq."""
    barrier = Barrier(2)

    def race(name: bytes) -> list[tuple[str, Any]]:
        client = open_hub.client()
        writer, answers = client.writer(spec_objects.key("shared"), STREAM), []
        for n in range(RACES):
            msg = writer.msg(name + b" %d" % n)
            barrier.wait(60)
            try:
                answers.append(("won", client.submit(msg)))
            except refusal as error:
                answers.append((error.reason, error.detail["stream_seq"]))
        return answers

    with ThreadPoolExecutor(2) as threads:
        rounds = zip(*threads.map(race, (b"left", b"right")), strict=True)
    client = open_hub.client()
    log = client.read(client.log(client.writer(spec_objects.key("shared"), STREAM).label))
    assert log.mmr.size == RACES
    for place, pair in enumerate(rounds, 1):
        (_, receipt), (lost, points_to) = sorted(pair, key=lambda item: item[0] != "won")
        assert lost == "E.SEQ/DUPLICATE"
        assert points_to == receipt[2] == place
        assert log.entries[place - 1][1] == receipt
    _refuse_disorder(log)


def test_racing_batches_of_one_client_keep_every_number_once(open_hub: Any) -> None:
    """The same fifty messages, sent by four threads at once: each is in the log once."""
    client = open_hub.client()
    writer = client.writer(spec_objects.key("batches"), STREAM)
    batch = [writer.msg(b"%d" % n) for n in range(50)]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: open_hub.client().submit_batch(batch), range(4)))
    log = client.read(client.log(writer.label))
    assert [msg for msg, _ in log.entries] == batch
    for number, results in enumerate(zip(*answers, strict=True)):
        won = [result for result in results if isinstance(result, list)]
        assert won == [log.entries[number][1]]


def test_a_second_hub_on_a_directory_refuses_and_harms_nothing(
    open_hub: Any, make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    client = open_hub.client()
    writer = client.writer(spec_objects.key("alice"), STREAM)
    client.submit(writer.msg(b"before"))
    second = make_hub(*open_hub.options, name="second")
    second.data = open_hub.data
    for mode in ((), ("--foreground",)):
        done = run_veen("hub", "start", *second.arguments, *mode)
        assert done.returncode != 0
        assert "is held by another hub" in done.stderr
        assert "Traceback" not in done.stderr
    assert client.submit(writer.msg(b"after"))[2] == 2
    assert client.read(client.log(writer.label)).mmr.size == 2
    assert int((open_hub.data / "run" / "hub.pid").read_text()) == open_hub.process.pid


def test_many_hubs_at_once_on_one_directory_leave_one(
    make_hub: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    hubs = [make_hub("--admission", "open", name=f"hub{n}") for n in range(3)]
    for hub in hubs:
        hub.data = hubs[0].data
        hub.launch()
    wait_until(lambda: sum(hub.process.poll() is None for hub in hubs) == 1, 60, "one hub left")
    (alone,) = [hub for hub in hubs if hub.process.poll() is None]
    wait_until(alone.is_ready, 60, "a hub that answers")
    assert all("held by another hub" in hub.log.read_text() for hub in hubs if hub is not alone)
    assert {hub.process.returncode for hub in hubs if hub is not alone} == {4}
    assert alone.client().status["hub_id"]


def test_h29_a_lock_of_another_name_on_this_disk_is_stale(make_hub: Callable[..., Any]) -> None:
    """The directory has moved, or the host was renamed: its process is gone all the same."""
    hub = make_hub("--admission", "open").start()
    lock = hub.data / "lock"
    held = json.loads(lock.read_text())
    assert held["host"] == socket.gethostname()
    # The holder first: one that saw its parent end would release the lock.
    hub.kill(sorted(hub.processes(), key=lambda process: process.pid != held["pid"]))
    assert json.loads(lock.read_text()) == held
    lock.write_text(json.dumps({"host": "elsewhere", "pid": held["pid"]}))
    assert hub.start().client().hub_id


def _refuse_disorder(log: Any) -> None:
    """Each client's numbers are 1, 2, 3 ... in the order of the log."""
    last: dict[bytes, int] = {}
    for msg, _ in log.entries:
        assert msg[4] == last.get(msg[3], 0) + 1
        last[msg[3]] = msg[4]
