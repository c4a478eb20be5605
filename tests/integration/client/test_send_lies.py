"""A hub that signs what is not so: the client finds out, keeps the evidence and its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.client import client_producer, taking_hub
from veen.client.client import Client
from veen.client.transport import Fork, StateLost
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.msg import Msg
from veen.wire.api import BatchResult, EquivocationReport, ErrorEnvelope

STREAM = "record/lies"


@pytest.fixture
def hub() -> Iterator[Any]:
    result = taking_hub.TakingHub()
    result.log(STREAM)
    yield result
    result.close()


@pytest.fixture
def client(hub: Any, open_client: Callable[..., Any]) -> Client:
    """One that has sent an event and believes the hub."""
    world = client_producer.a_world(sleep=lambda _: None)
    result: Client = open_client(hub.url, runtime=world)
    result.send(STREAM, b"1")
    return result


def view_of(client: Client, hub: Any) -> Any:
    return client.session.view(hub.labels(STREAM).at(0), STREAM, 0)


def refused(client: Client, hub: Any, kind: type[Exception], match: str) -> Exception:
    """Sending fails, the event is still there, and nothing of the answer was believed."""
    before, book = view_of(client, hub), client.session.root / "receipts.cborseq"
    raw = book.read_bytes()
    client.emit(STREAM, b"2")
    with pytest.raises(kind, match=match) as caught:
        client.flush()
    assert client.pending() == 1
    assert view_of(client, hub) == before
    assert book.read_bytes() == raw
    hub.say = None
    return caught.value


def test_two_receipts_for_one_place_are_kept_as_evidence(client: Client, hub: Any) -> None:
    hub.say = lambda msg, _: hub.signed(msg, 1, msg.leaf_hash())
    error = refused(client, hub, Fork, "two receipts for stream_seq 1")
    assert isinstance(error, Fork)
    report = EquivocationReport.decode(error.evidence.read_bytes())
    assert report.first.stream_seq == report.second.stream_seq == 1
    assert report.first.leaf_hash != report.second.leaf_hash
    assert view_of(client, hub).head in (report.first, report.second)
    assert [(report.first, report.second) for report in hub.reports] == [
        (report.first, report.second)
    ]


def test_a_signed_root_that_is_not_of_our_history_is_refused(client: Client, hub: Any) -> None:
    hub.say = lambda msg, _: hub.signed(msg, 2, h(b"another root"))
    refused(client, hub, Untrusted, "differs from the history known here")
    assert client.flush().acknowledged == 1


def test_a_place_before_what_was_acknowledged_is_refused(client: Client, hub: Any) -> None:
    client.send(STREAM, b"more")
    hub.say = lambda msg, _: hub.signed(msg, 1, h(b"any root"))
    refused(client, hub, Untrusted, "after 2 had been seen")


def test_a_receipt_of_another_key_is_refused(client: Client, hub: Any) -> None:
    other = SigningKey(h(b"another hub"))
    hub.say = lambda msg, _: hub.signed(msg, 2, h(b"any root"), other)
    refused(client, hub, Untrusted, "not signed by a key")
    assert client.flush().acknowledged == 1


def test_a_gap_without_a_proof_from_our_history_is_refused(client: Client, hub: Any) -> None:
    """The hub shows another history before the message than the one it showed us."""
    honest = hub.logs[hub.labels(STREAM).at(0)]
    forged = type(honest)(honest.label, hub_ts=honest.hub_ts)
    hub.logs[honest.label] = forged
    for number in range(3):
        forged.append(_a_msg(hub, number), hub.key)
    refused(client, hub, Untrusted, "at 1 differ from those known here")


def test_a_receipt_of_a_new_key_is_believed_when_the_old_one_endorses_it(
    client: Client, hub: Any
) -> None:
    hub.hub_ts += 10
    hub.rotate(b"the next key", hub.hub_ts)
    for log in hub.logs.values():
        log.hub_ts = hub.hub_ts
    assert client.send(STREAM, b"2").receipt.stream_seq == 2
    assert len(client.session.hub.hub_keys) == 2


def test_a_place_that_is_said_to_be_taken_is_not_given_up_without_proof(
    client: Client, hub: Any
) -> None:
    """A good receipt of something else says nothing of whose it is."""
    label = hub.labels(STREAM).at(0)
    other = hub.logs[label].append(_a_msg(hub, 7), hub.key)
    detail = {"receipt": other.encode(), "detail_enum": "DUPLICATE"}
    error = ErrorEnvelope(code="E.SEQ", message="taken", detail=detail)
    hub.say = lambda *_: BatchResult(error=error)
    refused(client, hub, StateLost, "run veen resync")
    assert client.flush().acknowledged == 1
    assert [item.receipt.stream_seq for item in [client.send(STREAM, b"3")]] == [4]


def _a_msg(hub: Any, number: int) -> Any:
    key, body = SigningKey(h(b"somebody")), b"%d" % number
    return Msg(
        profile_id=hub.profile.profile_id(),
        label=hub.labels(STREAM).at(0),
        client_id=key.public,
        client_seq=number + 1,
        prev_ack=0,
        auth_ref=None,
        ct_hash=h(body),
        ciphertext=body,
    ).signed(key)
