"""What is written without an object of its class is what the object would have written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from veen import msg, receipt
from veen.crypto import SigningKey
from veen.digest import h
from veen.msg import Msg
from veen.receipt import Receipt
from veen.wire import api

Objects = Callable[[type], st.SearchStrategy[Any]]
KEY = SigningKey(b"short ways".ljust(32, b"."))


@given(data=st.data())
def test_an_issued_message_is_the_signed_one(wire_objects: Objects, data: st.DataObject) -> None:
    drawn = data.draw(wire_objects(Msg))
    due = replace(drawn, client_id=KEY.public, ct_hash=h(drawn.ciphertext)).signed(KEY)
    issued = msg.issue(
        KEY,
        profile_id=drawn.profile_id,
        label=drawn.label,
        client_seq=drawn.client_seq,
        prev_ack=drawn.prev_ack,
        auth_ref=drawn.auth_ref,
        ciphertext=drawn.ciphertext,
    )
    assert issued == (due.encode(), due.leaf_hash())


@given(data=st.data())
def test_an_issued_receipt_is_the_signed_one(wire_objects: Objects, data: st.DataObject) -> None:
    drawn = data.draw(wire_objects(Receipt))
    issued = receipt.issue(
        KEY,
        label=drawn.label,
        stream_seq=drawn.stream_seq,
        leaf=drawn.leaf_hash,
        root=drawn.mmr_root,
        hub_ts=drawn.hub_ts,
    )
    assert issued == drawn.signed(KEY).encode()


@given(data=st.data(), server=st.text(max_size=40))
def test_items_are_framed_as_their_envelopes_frame_them(
    wire_objects: Objects, data: st.DataObject, server: str
) -> None:
    result = data.draw(st.lists(wire_objects(Receipt), max_size=30))
    raw = [item.encode() for item in result]
    results = tuple(api.BatchResult(receipt=item) for item in raw)
    due = api.BatchResponse(results=results, server_version=server).encode()
    assert api.encode_receipts(raw, server) == due
    messages = api.BatchRequest(msgs=tuple(raw))
    assert api.encode_messages(raw) == messages.encode()
    for item in result:
        answer = api.SubmitResponse(receipt=item, server_version=server)
        assert api.encode_receipt(item.encode(), server) == answer.encode()
