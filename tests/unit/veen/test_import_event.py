"""Imported events: what is one, why anything else is not, and when readers may count it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen import hub_identity
from veen.crypto import SigningKey, hpke_public_key
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.events import (
    IMPORT_SCHEMA,
    RECORD_SCHEMA,
    EventFault,
    ImportedEvent,
    ImportFault,
    NotAnEvent,
    NotImported,
    RecordEvent,
    Visibility,
    read_imported,
    visible,
)
from veen.label import DEFAULT_PROFILE, hub_id
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, open_msg, seal_payload
from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.body import AnyItem
from veen.wire.canonical_json import value_to_cbor

BRIDGE = b"b" * 32
READER = h(b"a reader of the other zone")
Builder = Callable[..., ImportedEvent]


@pytest.fixture(scope="session")
def an_imported(
    a_msg: Callable[..., Msg], a_receipt: Callable[..., Receipt], hub_key: SigningKey
) -> Builder:
    def build(msg: Msg | None = None, **changes: Any) -> ImportedEvent:
        origin = msg or a_msg()
        plain = ImportedEvent(
            source_hub_id=hub_id(hub_key.public),
            origin_stream="record/test",
            origin_msg=origin.encode(),
            origin_receipt=a_receipt(origin).encode(),
            bundle_id=h(b"bundle"),
            position=0,
            count=1,
            import_time=1_700_000_500,
            bridge_id=BRIDGE,
        )
        return replace(plain, **changes)

    return build


@pytest.fixture(scope="session")
def disclosed(a_msg: Callable[..., Msg], an_imported: Builder) -> Callable[..., ImportedEvent]:
    """An imported event whose body its key opens."""

    def build(**changes: Any) -> ImportedEvent:
        unsealed = a_msg()
        event = RecordEvent(
            subject_id="user-42",
            principal_id=unsealed.client_id,
            event_type="http.request",
            event_time=5,
            origin="host-1",
            payload=AnyItem(value_to_cbor({"path": "/a"})),
        )
        sealed = seal_payload(
            recipient=hpke_public_key(READER),
            ephemeral=h(b"ephemeral"),
            place=SealPlace.of(unsealed, DEFAULT_PROFILE),
            header=PayloadHdr(schema=RECORD_SCHEMA),
            body=replace(event, **changes).encode(),
            limits=Limits(),
        )
        msg = a_msg(ciphertext=sealed.ciphertext, ct_hash=h(sealed.ciphertext))
        opened = open_msg(private=READER, msg=msg, profile=DEFAULT_PROFILE, limits=Limits())
        return an_imported(msg, body_key=opened.body_key)

    return build


def fault_of(schema: bytes, body: bytes, client: bytes = BRIDGE) -> ImportFault | None:
    try:
        read_imported(schema, body, client)
    except NotImported as error:
        return error.fault
    return None


def test_an_unopened_message_is_none(an_imported: Builder) -> None:
    assert fault_of(b"", an_imported().encode()) is ImportFault.UNOPENED


def test_another_schema_is_none(an_imported: Builder) -> None:
    assert fault_of(RECORD_SCHEMA, an_imported().encode()) is ImportFault.OTHER_SCHEMA


@pytest.mark.parametrize("body", [b"", b"\xa0", b"\x80", b"\xa1\x61a\x01"])
def test_a_body_of_another_shape_is_none(body: bytes) -> None:
    assert fault_of(IMPORT_SCHEMA, body) is ImportFault.MALFORMED


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"position": 1}, id="behind its run"),
        pytest.param({"count": 0}, id="a run of none"),
        pytest.param({"origin_msg": None}, id="no message and no reason"),
        pytest.param({"excluded": "policy"}, id="a message and a reason"),
        pytest.param({"origin_stream": ""}, id="no stream"),
        pytest.param({"origin_stream": "é" * 257}, id="a long stream"),
        pytest.param({"origin_msg": None, "excluded": ""}, id="an empty reason"),
        pytest.param(
            {"origin_msg": None, "excluded": "x", "body_key": bytes(32)}, id="kept out, disclosed"
        ),
    ],
)
def test_fields_that_do_not_go_together_are_never_encoded(
    an_imported: Builder, changes: dict[str, Any]
) -> None:
    with pytest.raises(Malformed):
        an_imported(**changes).encode()


def test_an_origin_that_is_no_message_or_receipt_makes_it_none(an_imported: Builder) -> None:
    for change in ({"origin_msg": b"\x80"}, {"origin_receipt": b""}):
        assert fault_of(IMPORT_SCHEMA, an_imported(**change).encode()) is ImportFault.ORIGIN


def test_a_receipt_of_another_place_makes_it_none(
    an_imported: Builder, a_msg: Callable[..., Msg], a_receipt: Callable[..., Receipt]
) -> None:
    other = a_receipt(a_msg(client_seq=2)).encode()
    assert fault_of(IMPORT_SCHEMA, an_imported(origin_receipt=other).encode()) is ImportFault.PLACE
    for change in ({"origin_stream": "record/other"}, {"source_hub_id": bytes(32)}):
        assert fault_of(IMPORT_SCHEMA, an_imported(**change).encode()) is ImportFault.PLACE


def test_a_message_that_is_not_its_ciphertext_makes_it_none(
    an_imported: Builder, a_msg: Callable[..., Msg]
) -> None:
    msg = a_msg(ct_hash=bytes(32))
    assert fault_of(IMPORT_SCHEMA, an_imported(msg).encode()) is ImportFault.PLACE


def test_a_bridge_that_did_not_sign_makes_it_none(an_imported: Builder) -> None:
    assert fault_of(IMPORT_SCHEMA, an_imported().encode(), b"c" * 32) is ImportFault.BRIDGE


def test_what_is_encoded_reads_back(an_imported: Builder, disclosed: Builder) -> None:
    placeholder = an_imported(origin_msg=None, excluded="personal data")
    detail = an_imported(metadata=AnyItem(cbor.dump(["user-42", 5])))
    later = an_imported(position=4, count=9)
    for event in (an_imported(), disclosed(), placeholder, detail, later):
        assert read_imported(IMPORT_SCHEMA, event.encode(), BRIDGE) == event


def test_the_origin_event_is_opened_with_its_key_alone(disclosed: Builder) -> None:
    origin_event = disclosed().origin_event()
    assert (origin_event.subject_id, origin_event.value()) == ("user-42", {"path": "/a"})


def test_an_origin_event_that_is_not_disclosed_or_kept_out_is_none(
    an_imported: Builder, disclosed: Builder
) -> None:
    other_key = replace(disclosed(), body_key=bytes(32))
    excluded = an_imported(origin_msg=None, excluded="policy")
    for event in (an_imported(), other_key, excluded):
        with pytest.raises(NotAnEvent) as error:
            event.origin_event()
        assert error.value.fault is EventFault.UNOPENED


def test_an_origin_event_of_another_principal_is_none(disclosed: Builder) -> None:
    with pytest.raises(NotAnEvent) as error:
        disclosed(principal_id=bytes(32)).origin_event()
    assert error.value.fault is EventFault.PRINCIPAL


def test_verify_refuses_what_client_or_hub_did_not_sign(
    an_imported: Builder,
    a_msg: Callable[..., Msg],
    a_receipt: Callable[..., Receipt],
    hub_key: SigningKey,
) -> None:
    hub = hub_identity.new_identity(hub_key.public, 1_600_000_000, "none")
    an_imported().verify(hub)
    msg, thief = a_msg(), SigningKey(h(b"thief"))
    forged = replace(msg, sig=bytes(64))
    for event in (
        an_imported(forged),
        an_imported(origin_receipt=a_receipt(msg, key=thief).encode()),
    ):
        with pytest.raises(Untrusted):
            event.verify(hub)
    with pytest.raises(Untrusted, match="from hub"):
        an_imported().verify(hub_identity.new_identity(thief.public, 1_600_000_000, "none"))


@given(st.data())
def test_nothing_but_not_imported_is_ever_raised(
    mutated: Callable[[Any, bytes], bytes], disclosed: Builder, data: Any
) -> None:
    body = mutated(data, disclosed().encode())
    try:
        imported = read_imported(IMPORT_SCHEMA, body, BRIDGE)
    except NotImported:
        return
    assert read_imported(IMPORT_SCHEMA, imported.encode(), BRIDGE) == imported


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything_else(body: bytes) -> None:
    assert fault_of(IMPORT_SCHEMA, body) is not None
    assert fault_of(IMPORT_SCHEMA, cbor.dump({"count": body})) is not None


def a_run(an_imported: Builder, name: bytes, count: int, upto: int) -> list[ImportedEvent]:
    return [an_imported(bundle_id=h(name), position=at, count=count) for at in range(upto)]


def test_half_a_bundle_is_seen_by_nobody(an_imported: Builder) -> None:
    for upto in range(5):
        assert list(visible(a_run(an_imported, b"one", 5, upto))) == []


def test_a_whole_bundle_is_seen_in_order_and_half_of_the_next_is_not(an_imported: Builder) -> None:
    whole = a_run(an_imported, b"one", 3, 3)
    half = a_run(an_imported, b"two", 3, 2)
    assert list(visible(whole + half)) == whole


def test_a_run_that_was_begun_again_is_seen_whole(an_imported: Builder) -> None:
    """The rest of a bundle whose import was cut, after its plan was lost, is a run of its own."""
    begun = a_run(an_imported, b"one", 5, 2)
    rest = a_run(an_imported, b"one", 3, 3)
    assert list(visible(begun + rest)) == begun + rest


def test_what_is_held_back_can_be_asked_for(an_imported: Builder) -> None:
    seen: Visibility[int] = Visibility()
    released = [seen.add(event, at) for at, event in enumerate(a_run(an_imported, b"one", 4, 3), 7)]
    assert released == [[], [], []]
    assert seen.held_back() == [7, 8, 9]
    assert seen.add(an_imported(bundle_id=h(b"one"), position=3, count=4), 10) == [7, 8, 9, 10]
    assert seen.held_back() == []
