"""Answers that were lost or forged: what is sent again, sealed again, or found to be late."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import cbor2
import pytest
from nacl.public import PrivateKey

from support.client import client_producer, man_in_the_middle
from support.hub.spec_objects import unseal
from veen.client.client import Client
from veen.client.transport import Unreachable
from veen.errors import Failure, Rejected
from veen.keystore.directory import ClientDir
from veen.label import Profile

EPOCHS = Profile(epoch_sec=2)
EPOCHS_TOML = """
admission = "open"
reads = "open"
[limits]
max_epoch_skew_sec = 0
[[streams]]
name = "record/epochs"
epoch_sec = 2
"""


class Script:
    """Does to each request to submit what comes next; the rest is left alone."""

    def __init__(self, *steps: Callable[[Any, Any], bytes]) -> None:
        self._steps = list(steps)

    def reply(self, middle: Any, request: Any) -> tuple[bytes, bool]:
        if self._steps and b"/v1/submit_batch" in request.head.split(b"\r\n", 1)[0]:
            return self._steps.pop(0)(middle, request), False
        return middle.ask(request.raw).raw, True


@pytest.fixture
def steps() -> Any:
    class Steps:
        @staticmethod
        def lost(man: Any, request: Any) -> bytes:
            man.ask(request.raw)
            raise man_in_the_middle.Cut

        @staticmethod
        def dropped(*_: Any) -> bytes:
            raise man_in_the_middle.Cut

        @staticmethod
        def taken_but_refused(man: Any, request: Any) -> bytes:
            """The hub takes them all, and the client is told that a capability is missing."""
            answer = cbor2.loads(man.ask(request.raw).body)
            error = {1: 1, 2: "E.CAP", 3: "no", 4: {"detail_enum": "CAP_MISSING"}}
            answer[2] = [{2: error} for _ in answer[2]]
            return man_in_the_middle.answer(200, cbor2.dumps(answer)).raw

    return Steps


@pytest.fixture
def between() -> Iterator[Callable[[Any], Any]]:
    proxies: list[Any] = []

    def make(hub: Any) -> Any:
        proxies.append(man_in_the_middle.Middle(hub.port))
        return proxies[-1]

    yield make
    for item in proxies:
        item.close()


def bodies(hub: Any, client: Client, stream: str) -> list[bytes]:
    return client_producer.bodies_of(client_producer.log_of(hub.client(), stream), client)


def test_a_lost_answer_is_found_again(
    open_client_hub: Any, open_client: Callable[..., Any], between: Any, steps: Any,
    stream: str,
) -> None:  # fmt: skip
    man = between(open_client_hub)
    client = open_client(man.url)
    man.plan = Script(steps.lost, steps.lost)
    assert client.send(stream, b"1").receipt.stream_seq == 1
    man.plan = Script(steps.lost)
    sent = list(client.send_many(stream, [b"2", b"3", b"4"]))
    assert [event.receipt.stream_seq for event in sent] == [2, 3, 4]
    assert bodies(open_client_hub, client, stream) == [b"1", b"2", b"3", b"4"]


def test_a_withdrawn_event_that_the_hub_had_taken_is_reported_as_late(
    open_client_hub: Any, open_client: Callable[..., Any], between: Any, steps: Any,
    stream: str,
) -> None:  # fmt: skip
    man = between(open_client_hub)
    client = open_client(man.url)
    man.plan = Script(steps.taken_but_refused)
    with pytest.raises(Rejected):
        client.send(stream, b"withdrawn", attachments=[b"file"])
    assert (client.pending(), client.late()) == (0, [])
    client.emit_many(stream, [b"1", b"2"])
    flushed = client.flush()
    assert flushed.acknowledged == 2
    assert [(late.event_id, late.receipt.stream_seq) for late in flushed.late] == [(1, 1)]
    assert client.late() == list(flushed.late)
    assert bodies(open_client_hub, client, stream) == [b"withdrawn", b"1", b"2"]
    assert len(list((client.session.root / "attachments").iterdir())) == 1, "it was taken with it"


@pytest.mark.parametrize("is_opened_again", [False, True])
def test_many_withdrawn_events_of_which_the_hub_had_taken_all(
    is_opened_again: bool, open_client_hub: Any, open_client: Callable[..., Any], between: Any,
    steps: Any, stream: str,
) -> None:  # fmt: skip
    man = between(open_client_hub)
    client = open_client(man.url)
    client.send(stream, b"0")
    man.plan = Script(steps.taken_but_refused)
    with pytest.raises(Rejected):
        list(client.send_many(stream, [b"1", b"2", b"3"]))
    if is_opened_again:
        client.close()
        client = open_client(man.url)
    sent = list(client.send_many(stream, [b"4", b"5"]))
    assert [event.msg.client_seq for event in sent] == [5, 6]
    assert [late.event_id for late in client.late()] == [2, 3, 4]
    assert bodies(open_client_hub, client, stream) == [b"%d" % item for item in range(6)]


def test_an_event_sealed_again_lands_once_whichever_attempt_was_taken(
    gated_hub: Any, open_client: Callable[..., Any], between: Any, steps: Any,
    stream: str,
) -> None:  # fmt: skip
    """The capability ends after the hub has taken the events and before the client knows."""
    man = between(gated_hub)
    client = open_client(man.url)
    client_producer.authorized(client, stream, ttl=2)
    client.send(stream, b"0")
    client.emit_many(stream, [b"1", b"2"], attachments=[b"file"])
    man.plan = Script(steps.lost, *[steps.dropped] * 3)
    with pytest.raises(Unreachable):
        client.flush()
    time.sleep(3)
    with pytest.raises(Rejected) as caught:
        client.flush()
    assert caught.value.failure is Failure.CAP_TTL
    client_producer.authorized(client, stream, ttl=3_000)
    assert client.flush().acknowledged == 2
    reader = gated_hub.client()
    reader.http.headers["Authorization"] = f"Bearer {client_producer.READER_TOKEN}"
    log = client_producer.log_of(reader, stream)
    assert client_producer.bodies_of(log, client) == [b"0", b"1", b"2"]
    stored = {path.name for path in (client.session.root / "attachments").iterdir()}
    assert len(stored) == 2, "attachments of an attempt that came to nothing are still there"


def test_an_event_whose_epoch_has_passed_goes_to_the_next_label(
    make_client_hub: Callable[..., Any], open_client: Callable[..., Any], between: Any, steps: Any,
) -> None:  # fmt: skip
    hub = make_client_hub(EPOCHS_TOML).start()
    man = between(hub)
    client, stream = open_client(man.url), "record/epochs"
    client.send(stream, b"0", profile=EPOCHS)
    man.plan = Script(steps.lost, *[steps.dropped] * 3)
    client.emit_many(stream, [b"1", b"2"], profile=EPOCHS)
    with pytest.raises(Unreachable):
        client.flush()
    man.plan = Script(*[steps.dropped] * 4)
    client.emit_many(stream, [b"3", b"4"], profile=EPOCHS)
    with pytest.raises(Unreachable):
        client.flush()
    time.sleep(2.1)
    assert client.flush().acknowledged == 4
    result = []
    for view in sorted(client.session.state.views.values(), key=lambda item: item.epoch):
        log = client_producer.log_of(hub.client(), stream, view.epoch)
        result += client_producer.bodies_of(log, client)
    assert result == [b"%d" % item for item in range(5)]
    assert len(client.session.state.views) > 1


def test_attempts_of_a_client_id_that_was_rotated_are_still_committed_once(
    open_client_hub: Any, open_client: Callable[..., Any], between: Any, steps: Any,
    stream: str,
) -> None:  # fmt: skip
    man = between(open_client_hub)
    client = open_client(man.url)
    client.send(stream, b"0")
    client.emit_many(stream, [b"1", b"2"])
    man.plan = Script(steps.lost, *[steps.dropped] * 3)
    with pytest.raises(Unreachable):
        client.flush()
    old = client.session.identity
    client.close()
    ClientDir(client.session.root).rotate(int(time.time()), os.urandom, None)
    client = open_client(man.url)
    client.emit(stream, b"3", recipient=old.card.prekeys[0].prekey)
    assert client.flush().acknowledged == 3
    log = client_producer.log_of(open_client_hub.client(), stream)
    assert [unseal(msg, PrivateKey(old.readers()[0]))[1]
            for msg, _ in log.entries] == [b"0", b"1", b"2", b"3"]  # fmt: skip
    assert [msg[3] == old.client_id for msg, _ in log.entries] == [True, True, True, False]
