"""Clients that write without pause, and know what they were promised."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from support.hub.hub_process import HubProcess, wait_until
from support.hub.spec_client import Client, Refused
from support.hub.spec_objects import Writer

BATCH = 8


class Lost(Exception):
    """The answer did not come, or said that the hub cannot tell."""


class Producer:
    """One client of one label. ``promised`` holds each receipt it was ever given."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.promised: list[list[Any]] = []
        self.unanswered: list[list[Any]] = []
        self.recovered = 0
        self.failure: BaseException | None = None

    def work(self, client: Client, stop: threading.Event) -> None:
        """Send batches until told to stop or until an answer is lost."""
        try:
            while not stop.is_set():
                self.send(client)
        except Lost:
            return
        except BaseException as error:  # noqa: BLE001 - told by the thread that joins
            self.failure = error

    def send(self, client: Client) -> None:
        if not self.unanswered:
            body = b"%d" % self.writer.seq
            self.unanswered = [self.writer.msg(body) for _ in range(BATCH)]
        try:
            results = client.submit_batch(self.unanswered)
        except httpx.TransportError as error:
            raise Lost from error
        except Refused as error:
            raise Lost from _unavailable(error)
        for msg, result in zip(list(self.unanswered), results, strict=True):
            self._settle(client, msg, result)

    def _settle(self, client: Client, msg: list[Any], result: list[Any] | Refused) -> None:
        receipt = self._recovered(client, msg, result) if isinstance(result, Refused) else result
        assert not self.promised or receipt[2] > self.promised[-1][2]
        self.promised.append(receipt)
        self.writer.prev_ack = receipt[2]
        self.unanswered.remove(msg)

    def _recovered(self, client: Client, msg: list[Any], refusal: Refused) -> list[Any]:
        """A message whose first answer was lost: the hub says where it is."""
        if refusal.code == "E.UNAVAILABLE":
            raise Lost from refusal
        assert refusal.reason == "E.SEQ/DUPLICATE", refusal
        try:
            receipt = client.receipt(self.writer.label, refusal.detail["stream_seq"])
        except httpx.TransportError as error:
            raise Lost from error
        except Refused as error:
            raise Lost from _unavailable(error)
        client.check(msg, receipt)
        self.recovered += 1
        return receipt


def _unavailable(error: Refused) -> Refused:
    assert error.code == "E.UNAVAILABLE", error
    return error


def wait_for_promises(producers: list[Producer], count: int) -> None:
    """Until each producer was promised so many more."""
    due = [len(producer.promised) + count for producer in producers]
    wait_until(
        lambda: all(
            len(producer.promised) >= n for producer, n in zip(producers, due, strict=True)
        ),
        30,
        f"{count} receipts for everyone",
    )


@contextmanager
def working(hub: HubProcess, producers: list[Producer]) -> Iterator[None]:
    """All producers write while the block runs; one that saw anything wrong fails it."""
    stop = threading.Event()
    clients = [Client(hub.url) for _ in producers]
    threads = [
        threading.Thread(target=producer.work, args=(client, stop), daemon=True)
        for producer, client in zip(producers, clients, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for client in clients:
            client.http.close()
    for producer in producers:
        if producer.failure is not None:
            raise producer.failure
