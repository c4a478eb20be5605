"""What a client promises when it sends, against a hub that runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import client_producer
from support.hub import spec_objects
from veen.captoken import Rate
from veen.client.client import Client
from veen.client.credentials import Bearer
from veen.client.transport import HubRefused, StateLost, Unreachable
from veen.errors import Failure, Rejected, Untrusted, WrongSize
from veen.keystore.directory import Locked
from veen.label import DEFAULT_PROFILE
from veen.payload import attachment_coid


def test_a_sent_event_is_in_the_log_and_its_receipt_is_the_hubs(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url)
    sent = client.send(stream, b"hello")
    log = client_producer.log_of(open_client_hub.client(), stream)
    assert client_producer.bodies_of(log, client) == [b"hello"]
    assert sent.receipt.to_json() == [
        item.hex() if isinstance(item, bytes) else item for item in log.entries[0][1]
    ]
    assert (sent.size, sent.msg.client_seq, client.pending()) == (1, 1, 0)
    assert client.open_payload(sent.msg).body == b"hello"


def test_ten_lines_are_enough(open_client_hub: Any, tmp_path: Path) -> None:
    client_producer.a_client(tmp_path / "me", open_client_hub.url).close()
    with Client.open(tmp_path / "me", open_client_hub.url) as client:
        receipt = client.send("record/ten-lines", b"hello").receipt
        client.emit("record/ten-lines", b"later")
        client.flush()
    assert receipt.stream_seq == 1


def test_many_events_keep_their_order_over_batches(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url, batch=7)
    bodies = [b"%d" % number for number in range(60)]
    sent = list(client.send_many(stream, bodies))
    log = client_producer.log_of(open_client_hub.client(), stream)
    assert client_producer.bodies_of(log, client) == bodies
    assert [event.receipt.stream_seq for event in sent] == list(range(1, 61))
    acknowledged = [msg[5] for msg, _ in log.entries]
    assert acknowledged == sorted(acknowledged)
    assert acknowledged[-1] > 0
    assert all(
        ack < receipt[2] for ack, (_, receipt) in zip(acknowledged, log.entries, strict=True)
    )


def test_attachments_are_kept_to_be_handed_on(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url)
    sent = client.send(stream, b"with files", attachments=[b"one", b"two" * 100])
    stored = [client.session.root / "attachments" / attachment_coid(attachment).hex()
            for attachment in sent.attachments]  # fmt: skip
    assert [path.read_bytes() for path in stored] == list(sent.attachments)
    opened = client.open_payload(sent.msg)
    limits = client.session.limits
    assert opened.attachments(sent.attachments, limits) == (b"one", b"two" * 100)


def test_events_wait_for_an_absent_hub_and_keep_their_order(
    make_client_hub: Callable[..., Any], open_client: Callable[..., Any], stream: str
) -> None:
    hub = make_client_hub().start()
    client = open_client(hub.url)
    client.send(stream, b"0")
    hub.stop()
    for number in range(1, 20):
        client.emit(stream, b"%d" % number)
    with pytest.raises(Unreachable):
        client.flush()
    with pytest.raises(Unreachable) as caught:
        client.send(stream, b"20")
    assert "left in the outbox" in caught.value.__notes__[0]
    client.close()
    client = open_client(hub.url)
    assert client.pending() == 20
    hub.start()
    detail: list[tuple[int, int | None]] = []
    assert client.flush(lambda *how_far: detail.append(how_far)).acknowledged == 20
    assert detail[-1] == (20, 20)
    log = client_producer.log_of(hub.client(), stream)
    assert client_producer.bodies_of(log, client) == [b"%d" % number for number in range(21)]


def test_a_hub_never_met_is_named_before_anything_is_kept(
    open_client: Callable[..., Any], stream: str
) -> None:
    nobody = "http://127.0.0.1:9"
    with pytest.raises(Unreachable):
        open_client(nobody)
    client = open_client(nobody, hub_id=bytes(32))
    assert client.emit(stream, b"kept") == 1
    assert client.pending() == 1


def test_another_hub_than_the_pinned_one_is_sent_nothing(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url, hub_id=bytes(32))
    client.emit(stream, b"not for this hub")
    with pytest.raises(Untrusted, match="as pinned"):
        client.flush()
    assert client.pending() == 1


def test_two_processes_cannot_send_from_one_directory(
    open_client_hub: Any, open_client: Callable[..., Any]
) -> None:
    open_client(open_client_hub.url)
    with pytest.raises(Locked):
        open_client(open_client_hub.url)


def test_what_can_never_be_sent_is_refused_before_it_is_kept(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url)
    with pytest.raises(WrongSize):
        client.emit(stream, bytes(1_048_320))
    with pytest.raises(WrongSize):
        client.emit(stream, b"", attachments=[b""] * 1_025)
    assert client.pending() == 0
    largest = 1_048_320 - 16
    with pytest.raises(WrongSize):
        client.emit(stream, bytes(largest))
    assert client.send(stream, bytes(1_048_000)).receipt.stream_seq == 1


def test_others_in_between_are_proved_to_continue_our_history(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str,
) -> None:  # fmt: skip
    client, reader = open_client(open_client_hub.url), open_client_hub.client()
    other = reader.writer(spec_objects.key("other"), stream)
    for turn in range(4):
        for _ in range(turn * 3):
            reader.submit(other.msg(b"other"))
        client.send(stream, b"own")
    log = client_producer.log_of(reader, stream)
    view = client.session.view(log.label, stream, 0)
    assert (view.peaks.size, list(view.peaks.hashes)) == (22, log.mmr.peaks)


def test_who_may_not_read_notes_what_cannot_be_linked_yet(
    gated_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    first, second = (open_client(gated_hub.url, name) for name in ("first", "second"))
    for client in (first, second):
        client_producer.authorized(client, stream)
    first.send(stream, b"1")
    second.send(stream, b"2")
    first.send(stream, b"3")
    label = first.session.labels(stream, DEFAULT_PROFILE).at(0)
    view = first.session.view(label, stream, 0)
    assert (view.peaks.size, view.unlinked.stream_seq, view.seen) == (1, 3, 3)
    first.close()
    first = open_client(gated_hub.url, "first", credentials=Bearer(client_producer.READER_TOKEN))
    client_producer.authorized(first, stream)
    first.send(stream, b"4")
    view = first.session.view(label, stream, 0)
    assert (view.peaks.size, view.unlinked) == (4, None)


def test_a_refusal_for_good_withdraws_what_was_sent(
    gated_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(gated_hub.url)
    with pytest.raises(Rejected) as caught:
        client.send(stream, b"without a capability")
    assert caught.value.failure is Failure.CAP_MISSING
    assert caught.value.__notes__ == ["withdrawn: 1 events from number 1 on"]
    assert client.pending() == 0
    client_producer.authorized(client, stream)
    assert client.send(stream, b"with one").msg.client_seq == 1
    assert client.late() == []


def test_an_emitted_event_survives_a_refusal_and_goes_with_a_new_capability(
    gated_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(gated_hub.url)
    client.emit_many(stream, [b"1", b"2"])
    other = f"{stream}/other"
    client_producer.authorized(client, other)
    client.emit(other, b"3")
    with pytest.raises(Rejected) as caught:
        client.flush()
    assert f"event 1 for {stream} is left in the outbox" in caught.value.__notes__
    assert client.pending() == 2, "a stream held up another"
    client_producer.authorized(client, stream)
    assert client.flush().acknowledged == 2


def test_a_rate_is_waited_for(gated_hub: Any, open_client: Callable[..., Any], stream: str) -> None:
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        time.sleep(seconds)

    client = open_client(gated_hub.url, runtime=client_producer.a_world(sleep=sleep))
    client_producer.authorized(client, stream, rate=Rate(per_sec=4, burst=4))
    client.emit_many(stream, [b"%d" % number for number in range(10)])
    assert client.flush().acknowledged == 10
    assert waited
    assert all(item >= 1 for item in waited), "the hub said when to ask again"


def test_a_request_the_hub_does_not_serve_is_reported_with_its_code(
    gated_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(gated_hub.url)
    with pytest.raises(HubRefused) as caught:
        list(client.read(stream))
    assert caught.value.is_about_access


def test_a_directory_older_than_the_log_sends_nothing_until_it_is_resynced(
    open_client_hub: Any,
    open_client: Callable[..., Any],
    tmp_path: Path,
    stream: str,
) -> None:
    client = open_client(open_client_hub.url)
    client.send(stream, b"1")
    root = client.session.root
    old = (root / "state.json").read_bytes()
    for body in (b"2", b"3"):
        client.send(stream, body)
    client.close()
    (root / "state.json").write_bytes(old)
    client = open_client(open_client_hub.url)
    client.emit_many(stream, [b"4", b"5", b"6"])
    with pytest.raises(StateLost, match="resync"):
        client.flush()
    assert client_producer.log_of(open_client_hub.client(), stream).mmr.size == 3
    client.resync(stream)
    assert client.flush().acknowledged == 3
    log = client_producer.log_of(open_client_hub.client(), stream)
    assert client_producer.bodies_of(log, client) == [b"%d" % number for number in range(1, 7)]


def test_a_state_that_does_not_hold_in_itself_sends_nothing(
    open_client_hub: Any, open_client: Callable[..., Any], stream: str
) -> None:
    client = open_client(open_client_hub.url)
    for body in (b"1", b"2"):
        client.send(stream, body)
    path = client.session.root / "state.json"
    client.close()
    document = json.loads(path.read_bytes())
    (view,) = document["labels"].values()
    view["peaks"] = ["00" * 32]
    path.write_text(json.dumps(document))
    client = open_client(open_client_hub.url)
    client.emit(stream, b"3")
    with pytest.raises(StateLost, match=r"damaged.*resync"):
        client.flush()
    assert client_producer.log_of(open_client_hub.client(), stream).mmr.size == 2
    client.resync(stream)
    assert client.flush().acknowledged == 1
