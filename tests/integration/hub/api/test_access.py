"""Who may read: nobody without credentials, and a principal only its own streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from veen.log.entry import control_label
from veen.wire.api import (
    ErrorEnvelope,
    LocateRequest,
    LocateResponse,
    ReceiptRequest,
    StreamsResponse,
)


@pytest.fixture(scope="module")
def written(hub: Any) -> Any:
    """One message in record/a and one in export/x."""
    return {
        stream: hub.writer("alice", stream).write(1, 1)[0] for stream in ("record/a", "export/x")
    }


def receipt_of(hub: Any, label: bytes, **headers: str) -> tuple[int, str]:
    answer = hub.post("/v1/receipt", ReceiptRequest(label=label, stream_seq=1), **headers)
    code = "ok" if answer.status_code == 200 else ErrorEnvelope.decode(answer.data).code
    return answer.status_code, code


def test_a_principal_reads_its_own_streams_and_no_other(hub: Any, written: Any) -> None:
    assert receipt_of(hub, written["export/x"].label, as_="exporter") == (200, "ok")
    assert receipt_of(hub, written["record/a"].label, as_="exporter") == (403, "E.FORBIDDEN")
    assert receipt_of(hub, written["record/a"].label, as_="producer") == (403, "E.FORBIDDEN")
    assert receipt_of(hub, written["record/a"].label, as_="admin") == (200, "ok")


@pytest.mark.parametrize(
    "authorization",
    ["Bearer nobody", "Bearer ", "Basic YWRtaW46YWRtaW4=", "admin", "bearer", "", "Basic admin"],
)
def test_refuses_forged_credentials(hub: Any, written: Any, authorization: str) -> None:
    label = written["record/a"].label
    receipt = receipt_of(hub, label, Authorization=authorization)
    assert receipt == (401, "E.UNAUTHORIZED")


PROTECTED = [
    "/v1/stream",
    "/v1/receipt",
    "/v1/proof",
    "/v1/checkpoint",
    "/tooling/inclusion",
    "/tooling/consistency",
    "/tooling/range_proof",
    "/tooling/locate",
    "/tooling/streams",
]


@pytest.mark.parametrize("path", PROTECTED)
def test_nothing_is_reported_without_credentials_not_even_what_is_malformed(
    hub: Any, path: str
) -> None:
    answer = hub.post(path, b"\xff")
    assert (answer.status_code, ErrorEnvelope.decode(answer.data).code) == (401, "E.UNAUTHORIZED")
    assert "Bearer" in answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    "path", ["/tooling/streams", "/tooling/checkpoint_latest", "/tooling/checkpoint_range"]
)
def test_lists_need_credentials_too(hub: Any, path: str) -> None:
    assert hub.get(path).status_code == 401


def test_a_label_of_no_named_stream_is_for_who_reads_everything(hub: Any, written: Any) -> None:
    label = control_label(hub.identity.hub_id)
    assert receipt_of(hub, label, as_="admin") == (200, "ok")
    assert receipt_of(hub, label, as_="exporter") == (403, "E.FORBIDDEN")


def test_lists_and_locations_leave_out_what_must_not_be_read(hub: Any, written: Any) -> None:
    answer = hub.get("/tooling/streams", as_="exporter", Accept="application/cbor")
    assert [stream.name for stream in StreamsResponse.decode(answer.data).streams] == ["export/x"]
    request = LocateRequest(leaf_hash=written["record/a"].leaf_hash)
    hidden = hub.post("/tooling/locate", request, as_="exporter")
    assert LocateResponse.decode(hidden.data).places == ()
    shown = hub.post("/tooling/locate", request, as_="admin")
    assert LocateResponse.decode(shown.data).places[0].label == written["record/a"].label


def test_only_who_manages_registers_a_stream(hub: Any) -> None:
    for name in ("exporter", "producer", "asker"):
        answer = hub.post_json("/tooling/streams", {"name": "record/new"}, as_=name)
        assert (answer.status_code, answer.json["code"]) == (403, "E.FORBIDDEN")


def test_open_reads_are_for_everyone_but_managing_is_not(start_hub: Callable[..., Any]) -> None:
    hub = start_hub(reads="open", admission="open")
    label = hub.writer("alice", "record/a").write(1, 1)[0].label
    assert receipt_of(hub, label) == (200, "ok")
    assert hub.get("/tooling/status").json["stream_scoping"] == "off"
    assert hub.post_json("/tooling/streams", {"name": "record/new"}).status_code == 401
    answer = hub.post_json("/v1/checkpoint", {"ver": 1, "label": label.hex(), "upto_seq": 1})
    assert answer.status_code == 200
