"""Emitting: what is refused before it is kept, and what is in the streams afterwards."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.emit.emitter import Emitter, NoEvent
from recorder.emit.json_lines import MAX_LINE_BYTES, BadLine, LineForm, emit_lines, lines_of
from recorder.stream_map import UnknownType
from support.client.man_in_the_middle import Answer, Middle
from support.client.refusing_plan import path_of
from support.recorder import recorder_world
from veen.client.outbox import OutboxFull
from veen.client.transport import Unreachable

LINE = {"event_type": "order.placed", "subject_id": "u", "origin": "o", "payload": {"n": 0}}


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        pytest.param(
            {"event_type": "order.lost"}, "'order.lost'; expected one of log", id="unknown"
        ),
        pytest.param(
            {"subject_id": ""}, "subject_id = '': expected 1 to 512 bytes, got 0", id="no subject"
        ),
        pytest.param({"origin": ""}, "origin", id="no origin"),
        pytest.param({"subject_id": "s" * 513}, "got 513", id="long subject"),
        pytest.param({"subject_id": "\ud800"}, "expected text", id="half a sign"),
        pytest.param({"event_time": -1}, "event_time = -1", id="before 1970"),
        pytest.param({"event_time": 253_402_300_800_000}, "9999", id="after 9999"),
        pytest.param(
            {"payload": {"a": float("nan")}}, "the payload of order.placed: .*number", id="NaN"
        ),
        pytest.param(
            {"payload": {1: 2}},
            "expected a text key in a JSON object, got 1",
            id="key that is no text",
        ),
        pytest.param({"payload": b"raw"}, "expected a JSON value, got bytes", id="bytes"),
        pytest.param({"payload": {"a": 1 << 64}}, "64 bits", id="large number"),
        pytest.param(
            {"event_type": "log.line", "payload": "x" * 4_094},
            r"expected at most 4096 bytes \(max_payload_bytes\), got 4097",
            id="oversized",
        ),
    ],
)
def test_refuses_before_anything_is_kept(
    changes: dict[str, Any], detail: str, offline_emitter: Emitter
) -> None:
    good, bad = recorder_world.observed(), recorder_world.observed(**changes)
    for stored in (
        offline_emitter.emit_many,
        lambda some: list(offline_emitter.send_many(some[1:])),
    ):
        with pytest.raises((NoEvent, UnknownType), match=detail):
            stored([good, bad])
    assert offline_emitter.pending() == 0


def test_refuses_whoever_is_not_among_the_producers(tmp_path: Path) -> None:
    streams = [item | {"producers": ["aa" * 32]} for item in recorder_world.STREAMS]
    with (
        recorder_world.offline_emitter(tmp_path, streams=streams) as emitter,
        pytest.raises(NoEvent, match="is not among the producers of record/app/orders"),
    ):
        emitter.emit(recorder_world.observed())


def test_refuses_events_by_an_admin_where_no_producers_are_named(tmp_path: Path) -> None:
    me = recorder_world.an_identity(tmp_path / "producer").hex()
    with recorder_world.offline_emitter(tmp_path, admins=[me]) as admin:
        with pytest.raises(NoEvent, match=r"is an admin, and emits nothing to record/app/orders"):
            admin.emit(recorder_world.observed())
        admin.emit(recorder_world.observed(event_type="stream.renamed"))
        assert admin.pending() == 1


@pytest.mark.parametrize("admins", [[], ["aa" * 32]])
def test_refuses_a_migration_by_whoever_is_no_admin(tmp_path: Path, admins: list[str]) -> None:
    with (
        recorder_world.offline_emitter(tmp_path, admins=admins) as emitter,
        pytest.raises(NoEvent, match="only admins record changes of streams"),
    ):
        emitter.emit(recorder_world.observed(event_type="stream.renamed"))


def test_takes_what_just_fits(offline_emitter: Emitter) -> None:
    offline_emitter.emit(recorder_world.observed(event_type="log.line", payload="x" * 4_093))
    assert offline_emitter.pending() == 1


def test_an_event_survives_until_the_hub_answers(offline_emitter: Emitter) -> None:
    offline_emitter.emit(recorder_world.observed())
    with pytest.raises(Unreachable):
        offline_emitter.flush()
    assert offline_emitter.pending() == 1


def test_each_event_is_in_the_stream_of_its_type_under_its_own_principal(
    emit_world: Any, open_emitter: Callable[..., Emitter]
) -> None:
    before = {
        name: len(emit_world.events(name)) for name in (recorder_world.ORDERS, recorder_world.LOGS)
    }
    kinds = ["order.placed", "log.line", "order.cancelled", "log.line", "order.placed"]
    observed = [
        recorder_world.observed(event_type=kind, payload={"n": n}) for n, kind in enumerate(kinds)
    ]
    emitter = open_emitter()
    emitter.emit_many(observed)
    assert emitter.flush().acknowledged == 5
    result = {name: emit_world.events(name)[count:] for name, count in before.items()}
    assert [item.value() for item in result[recorder_world.ORDERS]] == [
        {"n": 0},
        {"n": 2},
        {"n": 4},
    ]
    assert [item.value() for item in result[recorder_world.LOGS]] == [{"n": 1}, {"n": 3}]
    first = result[recorder_world.ORDERS][0]
    assert first.principal_id == emit_world.ids["producer"]
    assert (first.subject_id, first.origin, first.event_time) == (
        "user:7", "shop", 1_700_000_000_123,
    )  # fmt: skip


def test_a_sent_event_has_its_receipt_and_the_time_of_now(
    emit_world: Any, open_emitter: Callable[..., Emitter]
) -> None:
    emitter = open_emitter()
    begun = recorder_world.now_ms()
    sent = emitter.send(recorder_world.observed(event_time=None, payload=None))
    event = emit_world.events(recorder_world.ORDERS)[sent.receipt.stream_seq - 1]
    assert begun <= event.event_time <= recorder_world.now_ms()
    assert event.value() is None


def test_many_are_sent_in_order_across_streams(open_emitter: Callable[..., Emitter]) -> None:
    kinds = ["order.placed"] * 3 + ["log.line"] + ["order.placed"]
    sent = list(
        open_emitter().send_many(recorder_world.observed(event_type=kind) for kind in kinds)
    )
    seqs = [event.receipt.stream_seq for event in sent]
    assert seqs[1:3] == [seqs[0] + 1, seqs[0] + 2]
    assert seqs[4] == seqs[0] + 3


class NotesPaths:
    """A man in the middle who does nothing but note what is asked for."""

    def __init__(self) -> None:
        self.paths: list[bytes] = []

    def reply(self, middle: Middle, request: Answer) -> tuple[bytes, bool]:
        self.paths.append(path_of(request))
        return middle.ask(request.raw).raw, True


def test_there_is_no_request_beside_the_submits(emit_world: Any) -> None:
    middle, plan = Middle(emit_world.hub.port), NotesPaths()
    hub = emit_world.document()["hub"] | {"url": middle.url}
    with emit_world.emitter(hub=hub) as emitter:
        emitter.send(recorder_world.observed())
        middle.plan = plan
        emitter.emit_many([recorder_world.observed()] * 10)
        emitter.flush()
    middle.close()
    assert plan.paths == [b"/v1/submit_batch"]


def lines(*documents: Any) -> io.BytesIO:
    rows = [
        document if isinstance(document, bytes) else json.dumps(document).encode()
        for document in documents
    ]
    return io.BytesIO(b"".join(row + b"\n" for row in rows))


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        pytest.param(b"{", "not JSON", id="not JSON"),
        pytest.param(b"\xff", "not JSON", id="not UTF-8"),
        pytest.param([1], "expected a JSON object, got list", id="a list"),
        pytest.param(LINE | {"more": 1}, "unknown key 'more'", id="unknown key"),
        pytest.param({"event_type": "order.placed"}, "'subject_id' is missing", id="missing"),
        pytest.param(LINE | {"origin": 7}, "'origin': expected text", id="no text"),
        pytest.param(LINE | {"event_time": "now"}, "expected a time", id="no time"),
        pytest.param(LINE | {"event_time": "2025-11-19T03:20:00"}, "offset", id="no offset"),
        pytest.param(LINE | {"event_type": "?"}, "no stream is configured", id="unknown type"),
        pytest.param(
            b'{"event_type": "order.placed", "event_type": "order.placed"}',
            "duplicate key",
            id="twice",
        ),
        pytest.param(b'"' + b"x" * MAX_LINE_BYTES + b'"', "expected at most", id="endless"),
    ],
)
def test_a_bad_line_is_named_and_all_before_it_are_kept(
    bad: Any, detail: str, offline_emitter: Emitter
) -> None:
    source = lines(LINE, b"", LINE, bad, LINE)
    with pytest.raises(BadLine, match=rf"line 4: .*{detail}.*--from-line 4") as raised:
        emit_lines(offline_emitter, lines_of(source), LineForm())
    assert raised.value.number == 4
    assert offline_emitter.pending() == 2


def test_lines_are_kept_though_the_hub_does_not_answer(offline_emitter: Emitter) -> None:
    with pytest.raises(Unreachable) as raised:
        emit_lines(offline_emitter, lines_of(lines(*[LINE] * 1_500)), LineForm())
    assert offline_emitter.pending() == 1_500
    assert raised.value.__notes__ == ["1500 events were stored; 1500 wait in the outbox"]


def test_a_full_outbox_names_the_first_line_that_is_not_kept(tmp_path: Path) -> None:
    with (
        recorder_world.bounded_emitter(tmp_path, max_events=1_024) as emitter,
        pytest.raises(OutboxFull) as raised,
    ):
        emit_lines(emitter, lines_of(lines(*[LINE] * 1_500)), LineForm())
    assert raised.value.__notes__ == ["nothing from line 1025 on is stored"]


def test_goes_on_at_a_line(emit_world: Any, open_emitter: Callable[..., Emitter]) -> None:
    before = len(emit_world.events(recorder_world.ORDERS))
    source = lines(b"x" * 50, *[LINE | {"payload": n, "event_time": n} for n in range(3)])
    form = LineForm(default_origin="unused")
    emitted = emit_lines(open_emitter(), lines_of(source, 3), form)
    assert (emitted.stored, emitted.acknowledged) == (2, 2)
    events = emit_world.events(recorder_world.ORDERS)[before:]
    assert [(event.value(), event.event_time) for event in events] == [(1, 1), (2, 2)]
