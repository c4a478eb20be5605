"""receipts.cborseq, and an outbox that several threads fill."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import client_producer
from veen.client.receipts import ReceiptBook
from veen.digest import h
from veen.receipt import Receipt


def a_receipt(number: int) -> Receipt:
    return Receipt(
        label=h(b"label"), stream_seq=number, leaf_hash=h(b"leaf"), mmr_root=h(b"root"), hub_ts=1
    )


def in_book(path: Path) -> list[int]:
    return [receipt[2] for receipt in client_producer.receipts_in(path.parent)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "receipts.cborseq"


def test_receipts_follow_each_other(path: Path) -> None:
    book = ReceiptBook(path)
    book.append([a_receipt(1), a_receipt(2**40)])
    book.append([])
    book.append([a_receipt(3)])
    assert in_book(path) == [1, 2**40, 3]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("count", [0, 1, 2, 5_000])
@pytest.mark.parametrize("torn", [1, 2, 40, 150])
def test_what_a_crash_tore_is_cut_off_before_the_next(count: int, torn: int, path: Path) -> None:
    ReceiptBook(path).append([a_receipt(item) for item in range(1, count + 1)])
    with path.open("ab") as file:
        file.write(a_receipt(9).encode()[:torn])
    ReceiptBook(path).append([a_receipt(7)])
    assert in_book(path) == [*range(1, count + 1), 7]


def test_a_tail_of_zeros_is_cut_off(path: Path) -> None:
    ReceiptBook(path).append([a_receipt(1)])
    with path.open("ab") as file:
        file.write(bytes(4_096))
    ReceiptBook(path).append([a_receipt(2)])
    assert in_book(path) == [1, 2]


def test_threads_may_emit_while_another_sends(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url, batch=5)

    def emit(name: int) -> None:
        for number in range(25):
            client.emit(stream, b"%d/%d" % (name, number))

    threads = [threading.Thread(target=emit, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    landed = 0
    while any(thread.is_alive() for thread in threads):
        landed += client.flush().acknowledged
    for thread in threads:
        thread.join()
    landed += client.flush().acknowledged
    bodies = client_producer.bodies_of(
        client_producer.log_of(open_client_hub.client(), stream), client
    )
    assert landed == len(set(bodies)) == len(bodies) == 100
    for name in range(4):
        own = [body for body in bodies if body.startswith(b"%d/" % name)]
        assert own == [b"%d/%d" % (name, number) for number in range(25)]


def test_an_event_too_large_for_the_hub_does_not_hold_up_those_before_it(
    make_client_hub: Callable[..., Any], open_client: Callable[..., Any], stream: str
) -> None:
    hub = make_client_hub(client_producer.OPEN + "[limits]\nmax_msg_bytes = 4096\n").start()
    identity = hub.client().hub_id
    client = open_client(hub.url, hub_id=identity, batch=2)
    sizes = [10, 20, 30, 5_000, 40]
    client.emit_many(stream, [bytes(size) for size in sizes])
    with pytest.raises(ValueError, match="does not fit"):
        client.flush()
    log = client_producer.log_of(hub.client(), stream)
    assert [len(body) for body in client_producer.bodies_of(log, client)] == [10, 20, 30]
    assert client.withdraw(4)
    assert client.flush().acknowledged == 1
