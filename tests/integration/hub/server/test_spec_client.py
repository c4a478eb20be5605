"""A client written from the specification alone gets along with the hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import cbor2
import httpx
import pytest

from support.hub import spec_objects


def test_what_is_sealed_submitted_and_read_back_verifies_and_opens(
    stream: str, shared_hub: Any
) -> None:
    client, reader = shared_hub.client(), spec_objects.reader_key("reader")
    assert client.hub_id == spec_objects.ht("veen/hub-id", client.hub_pks[0])
    writer, mmr = client.writer(spec_objects.key("alice"), stream), spec_objects.Mmr()
    receipts = []
    for n in range(1, 12):
        msg = writer.msg(b"secret %d" % n, bytes(reader.public_key))
        receipts.append(client.submit(msg))
        writer.prev_ack = n
        assert receipts[-1][2] == n
        assert receipts[-1][4] == mmr.append(spec_objects.leaf_hash(msg))
    log = client.read(client.log(writer.label), max_items=4)
    assert [receipt for _, receipt in log.entries] == receipts
    opened = [spec_objects.unseal(msg, reader) for msg, _ in log.entries]
    assert opened == [
        ({1: spec_objects.h(b"test.event.v1")}, b"secret %d" % n) for n in range(1, 12)
    ]


def test_receipts_proofs_and_checkpoints_verify_at_every_size(stream: str, shared_hub: Any) -> None:
    client = shared_hub.client()
    writer = client.writer(spec_objects.key("alice"), stream)
    client.submit_batch([writer.msg(b"%d" % n) for n in range(17)])
    for msg, receipt in client.read(client.log(writer.label)).entries:
        seq, root = receipt[2], receipt[4]
        assert client.receipt(writer.label, seq) == receipt
        spec_objects.verify_proof(
            client.proof(writer.label, seq), root, seq, spec_objects.leaf_hash(msg)
        )
        checkpoint = client.checkpoint(writer.label, seq)
        assert checkpoint[:6] == [1, writer.label, writer.label, seq, root, 0]


def test_a_batch_answers_in_order_and_one_failure_touches_no_neighbour(
    stream: str, shared_hub: Any
) -> None:
    client = shared_hub.client()
    alice, bob = (client.writer(spec_objects.key(name), stream) for name in ("alice", "bob"))
    forged = bob.msg(b"forged")
    forged[9] = bytes(64)
    duplicate = alice.msg(b"1")
    batch = [duplicate, forged, alice.msg(b"2"), duplicate, alice.msg(b"3")]
    first, bad, second, again, third = client.submit_batch(batch)
    assert [first[2], second[2], third[2]] == [1, 2, 3]
    assert (bad.reason, bad.detail["stage"]) == ("E.SIG/SIG_INVALID", "auth")
    assert (again.reason, again.detail["stream_seq"]) == ("E.SEQ/DUPLICATE", 1)


def test_json_and_cbor_say_the_same(stream: str, shared_hub: Any) -> None:
    client = shared_hub.client()
    writer = client.writer(spec_objects.key("alice"), stream)
    request = {"ver": 1, "msg": _jsonable(writer.msg(b"in json"))}
    reply = client.http.post("/v1/submit", json=request)
    assert reply.status_code == httpx.codes.OK, reply.text
    receipt = client.receipt(writer.label, 1)
    assert reply.json()["receipt"] == _jsonable(receipt)
    requested = {"ver": 1, "label": writer.label.hex(), "from_seq": 0, "with_receipts": True}
    page = client.http.post("/v1/stream", json=requested).json()
    (result,) = page["items"]
    msg, _ = client.read(client.log(writer.label)).entries[0]
    expected = {"stream_seq": 1, "msg": _jsonable(msg), "receipt": _jsonable(receipt)}
    assert result == expected
    proof = client.http.post(
        "/v1/proof", json={"ver": 1, "label": writer.label.hex(), "stream_seq": 1}
    ).json()["mmr_proof"]
    names = ("ver", "leaf_hash", "path", "peaks_after")
    assert proof == dict(
        zip(names, _jsonable(list(client.proof(writer.label, 1).values())), strict=True)
    )


def test_a_refusal_is_the_same_in_json_and_cbor(stream: str, shared_hub: Any) -> None:
    client = shared_hub.client()
    writer = client.writer(spec_objects.key("alice"), stream, seq=4)
    msg = writer.msg(b"out of turn")
    in_cbor = client.http.post(
        "/v1/submit",
        content=cbor2.dumps({1: 1, 2: msg}),
        headers={"Content-Type": "application/cbor"},
    )
    in_json = client.http.post("/v1/submit", json={"ver": 1, "msg": _jsonable(msg)})
    assert in_cbor.status_code == in_json.status_code == httpx.codes.CONFLICT
    error = cbor2.loads(in_cbor.content)
    assert (error[2], error[4]["detail_enum"]) == ("E.SEQ", "CLIENT_SEQ")
    document = in_json.json()
    assert [document[name] for name in ("ver", "code", "message", "detail")] == [
        error[n] for n in (1, 2, 3, 4)
    ]


@pytest.fixture(scope="module")
def issuer() -> Any:
    return spec_objects.key("issuer")


@pytest.fixture(scope="module")
def gated_hub(make_shared_hub: Callable[..., Any], issuer: Any) -> Any:
    options = ("--reads", "open", "--issuer", bytes(issuer.verify_key).hex())
    return make_shared_hub(*options, name="gated").start()


def test_a_gated_hub_wants_a_capability_for_the_stream(
    stream: str, gated_hub: Any, issuer: Any, refused: Callable[[str], Any]
) -> None:
    client, alice = gated_hub.client(), spec_objects.key("alice")
    public = bytes(alice.verify_key)
    with refused("E.CAP/CAP_MISSING"):
        client.submit(client.writer(alice, stream).msg(b"no capability"))
    stranger = spec_objects.cap_token(spec_objects.key("stranger"), public, [stream], 600, None)
    with refused("E.CAP/CAP_INVALID"):
        client.authorize(stranger)
    token = spec_objects.cap_token(issuer, public, [stream], 600, None)
    first = client.authorize(token)
    assert client.authorize(token) == first
    assert first[4] == first[3] + 600
    more = {"auth_ref": first[2]}
    with refused("E.AUTH/AUTH_REF"):
        client.submit(client.writer(alice, "record/other", **more).msg(b"another stream"))
    with refused("E.AUTH/AUTH_REF"):
        client.submit(client.writer(spec_objects.key("bob"), stream, **more).msg(b"another client"))
    assert client.submit(client.writer(alice, stream, **more).msg(b"mine"))[2] == 1


def test_a_capability_ends_with_its_ttl(
    stream: str,
    gated_hub: Any,
    issuer: Any,
    refused: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    client, alice = gated_hub.client(), spec_objects.key("alice")
    token = spec_objects.cap_token(issuer, bytes(alice.verify_key), [stream], 1, None)
    answer = client.authorize(token)
    writer = client.writer(alice, stream, auth_ref=answer[2])
    wait_until(lambda: _hub_ts(client) > answer[4], 10, "the end of the ttl")
    with refused("E.TIME/CAP_TTL"):
        client.submit(writer.msg(b"too late"))


def test_a_capability_has_a_rate(stream: str, gated_hub: Any, issuer: Any) -> None:
    client, alice = gated_hub.client(), spec_objects.key("alice")
    token = spec_objects.cap_token(issuer, bytes(alice.verify_key), [stream], 600, (1, 3))
    writer = client.writer(alice, stream, auth_ref=client.authorize(token)[2])
    taken = client.submit_batch([writer.msg(b"%d" % n) for n in range(5)])
    assert [item[2] for item in taken[:3]] == [1, 2, 3]
    assert taken[3].reason == "E.RATE/CAP_RATE"
    assert taken[3].retry_after == 1


def test_a_restart_keeps_everything(stream: str, open_hub: Any) -> None:
    client = open_hub.client()
    writer = client.writer(spec_objects.key("alice"), stream)
    receipts = client.submit_batch([writer.msg(b"%d" % n) for n in range(9)])
    assert open_hub.stop() == 0
    client = open_hub.start().client()
    log = client.read(client.log(writer.label))
    assert [cbor2.dumps(item) for _, item in log.entries] == [
        cbor2.dumps(receipt) for receipt in receipts
    ]
    assert client.submit(writer.msg(b"on it goes"))[2] == 10
    client.read(log)


def _hub_ts(client: Any) -> int:
    return int(client.http.get("/tooling/status").json()["hub_ts"])


def _jsonable(value: Any) -> Any:
    """Bytes as lowercase hex."""
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    return value.hex() if isinstance(value, bytes) else json.loads(json.dumps(value))
