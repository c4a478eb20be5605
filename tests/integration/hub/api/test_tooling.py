"""Authorisation, status and the registry of streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hub.storage import identity
from veen.captoken import Allow, Rate
from veen.errors import Untrusted
from veen.label import stream_id
from veen.log.entry import control_label
from veen.wire.api import AuthorizeResponse, CapabilityResponse, ErrorEnvelope, StatusResponse

CBOR = "application/cbor"
NOON = 1_900_000_000


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, ErrorEnvelope.decode(answer.data).code


def test_authorising_twice_changes_nothing(hub: Any) -> None:
    token = hub.token(hub.key("alice"), "record/a", ttl=100)
    first = hub.post("/tooling/authorize", token)
    hub.set_clock(NOON + 5)
    assert hub.post("/tooling/authorize", token).data == first.data
    assert hub.post_json("/tooling/authorize", token.to_json(), Accept=CBOR).data == first.data
    response = AuthorizeResponse.decode(first.data)
    assert response.auth_ref == token.auth_ref()
    assert response.expires_at == response.issued_at + 100


def test_the_receipt_of_an_authorisation_is_of_the_control_log(hub: Any) -> None:
    answer = hub.post("/tooling/authorize", hub.token(hub.key("bob"), "record/a"))
    response = AuthorizeResponse.decode(answer.data)
    hub.identity.verify_receipt(response.receipt)
    assert response.receipt.label == control_label(hub.identity.hub_id)
    assert response.receipt.hub_ts == response.issued_at


def test_the_end_of_an_endless_capability_fits_its_field(hub: Any) -> None:
    answer = hub.post("/tooling/authorize", hub.token(hub.key("eve"), "record/a", ttl=2**64 - 1))
    assert AuthorizeResponse.decode(answer.data).expires_at == 2**64 - 1


def test_a_known_capability_is_reported_with_its_end(hub: Any) -> None:
    token = hub.token(hub.key("alice"), "record/a", ttl=100)
    hub.post("/tooling/authorize", token)
    answer = hub.get(f"/tooling/capability?auth_ref={token.auth_ref().hex()}", Accept=CBOR)
    response = CapabilityResponse.decode(answer.data)
    assert (response.token, response.expires_at) == (token, response.issued_at + 100)


def test_an_unknown_capability_is_not_found(hub: Any) -> None:
    answer = hub.get(f"/tooling/capability?auth_ref={'00' * 32}", Accept=CBOR)
    assert refusal(answer) == (404, "E.NOT_FOUND")


def test_the_status_carries_a_signed_identity(hub: Any) -> None:
    response = StatusResponse.decode(hub.get("/tooling/status", Accept=CBOR).data)
    assert response.identity() == hub.identity
    with pytest.raises(Untrusted):
        replace(response, anchoring="elsewhere").identity()


@pytest.mark.parametrize("raw", [b"", b"\xa0", b"\xa1\x01\x02"])
def test_refuses_what_is_no_capability(hub: Any, raw: bytes) -> None:
    answer = hub.post("/tooling/authorize", raw)
    assert refusal(answer) == (403, "E.CAP")
    detail = ErrorEnvelope.decode(answer.data).detail
    assert detail is not None
    assert detail["detail_enum"] == "CAP_INVALID"


def test_refuses_a_capability_changed_after_it_was_signed(hub: Any) -> None:
    token = hub.token(hub.key("alice"), "record/a", ttl=1)
    longer = replace(token, allow=replace(token.allow, ttl=2))
    assert refusal(hub.post("/tooling/authorize", longer)) == (403, "E.CAP")


def test_refuses_a_rate_above_the_limit_registry(hub: Any) -> None:
    token = hub.token(hub.key("alice"), "record/a", rate=Rate(per_sec=1, burst=2**64 - 1))
    assert refusal(hub.post("/tooling/authorize", token)) == (403, "E.CAP")


def test_refuses_a_capability_that_no_control_entry_holds(hub: Any) -> None:
    names = [f"record/{number}" for number in range(600)]
    answer = hub.post("/tooling/authorize", hub.token(hub.key("alice"), *names))
    assert refusal(answer) == (413, "E.LIMIT")


@pytest.mark.parametrize(
    ("streams", "status"),
    [
        (["record/a"], 200),
        (["record/b"], 403),
        (["record/a", "record/b"], 403),
        (["record/never-registered"], 403),
        (["export/x"], 403),
    ],
)
def test_a_principal_gets_a_capability_for_its_own_streams_only(
    hub: Any, streams: list[str], status: int
) -> None:
    token = hub.token(hub.key("producer"), *streams)
    assert hub.post("/tooling/authorize", token).status_code == status


def test_a_reader_gets_no_capability_at_all(hub: Any) -> None:
    token = hub.token(hub.key("exporter"), "export/x")
    assert refusal(hub.post("/tooling/authorize", token)) == (403, "E.FORBIDDEN")


def test_a_stream_known_by_a_capability_only_has_no_name(hub: Any) -> None:
    hub.authorize(hub.token(hub.key("stranger"), "record/nameless"))
    token = hub.token(hub.key("producer"), "record/nameless")
    assert refusal(hub.post("/tooling/authorize", token)) == (403, "E.FORBIDDEN")


def test_the_status_tells_who_the_hub_is_and_where_it_stands(hub: Any) -> None:
    writer = hub.writer("carol", "record/b")
    hub.set_clock(NOON + 60)
    receipts = writer.write(1, 3)
    response = StatusResponse.decode(hub.get("/tooling/status", Accept=CBOR).data)
    assert (response.hub_id, response.hub_keys) == (hub.identity.hub_id, hub.identity.hub_keys)
    assert (response.role, response.admission, response.reads) == ("standalone", "gated", "policy")
    assert response.stream_scoping == "enforced"
    assert (response.hub_ts, response.epoch) == (NOON + 60, 0)
    assert [profile.epoch for profile in response.profiles] == [0, (NOON + 60) // 60, 0]
    assert (response.last_stream_seq, response.peaks_count) == (3, 2)
    assert (response.last_label, response.last_mmr_root) == (writer.label, receipts[-1].mmr_root)
    assert response.limits.max_msg_bytes == 4096
    assert hub.get("/tooling/status").json["hub_id"] == hub.identity.hub_id.hex()


def test_a_registered_stream_is_listed_and_can_be_granted(hub: Any) -> None:
    expected = {"name": "record/new"}
    assert hub.post_json("/tooling/streams", expected, as_="admin").status_code == 200
    assert hub.post_json("/tooling/streams", expected, as_="admin").status_code == 200
    names = [item["name"] for item in hub.get("/tooling/streams", as_="admin").json["streams"]]
    usual = ["bounded/a", "export/x", "padded/a", "record/a", "record/b"]
    assert names == [*usual, "record/new", "record/roll"]
    hub.writer("dave", "record/new").write(1, 2)
    listed = hub.get("/tooling/streams", as_="admin").json["streams"]
    labels = next(item["labels"] for item in listed if item["name"] == "record/new")
    assert [label["last_stream_seq"] for label in labels] == [2]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "record/other", "epoch_sec": 7}, 400),
        ({"name": "record/a", "epoch_sec": 60}, 409),
        ({"name": ""}, 400),
        ({"name": "new\nline"}, 400),
        ({"name": "x", "profile": 1}, 400),
        ({}, 400),
    ],
)
def test_refuses_a_stream_it_cannot_serve(hub: Any, body: dict[str, Any], status: int) -> None:
    assert hub.post_json("/tooling/streams", body, as_="admin").status_code == status


def test_a_rotated_key_is_reported_without_a_restart(hub: Any) -> None:
    before = hub.get("/tooling/status").json["hub_pk"]
    identity.rotate(hub.datadir, bytes, NOON + 60, 300)
    assert hub.get("/tooling/status").json["hub_pk"] != before
    assert len(hub.get("/tooling/status").json["hub_keys"]) == 2


def test_the_edge_reads_capabilities_as_strictly_as_the_core() -> None:
    unsorted = [stream_id("b").hex(), stream_id("a").hex()]
    with pytest.raises(ValueError, match="out of order"):
        Allow.from_json({"stream_ids": sorted(unsorted, reverse=True), "ttl": 1})
