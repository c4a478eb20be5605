"""Every lie in a page or a proof is refused, with its place; nothing of the page is handed out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from support.client import lying_hub, reading_support
from veen import hub_identity
from veen.client.reader import read
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.msg import Msg
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.wire.api import StreamItem, StreamResponse

NAME = "record/a"
SIZE = 12
OTHER = SigningKey(h(b"another hub"))


def on(path: str, change: Callable[[Any, Any], Any]) -> Callable[[str, Any, Any], Any]:
    """A lie that changes the answers of one route."""
    return lambda at, asked, answer: change(asked, answer) if at == path else answer


def page(change: Callable[[StreamResponse], StreamResponse]) -> Any:
    """Changes the page from 5 on."""
    return on("/v1/stream", lambda asked, answer: change(answer) if asked.from_seq == 5 else answer)


def item(seq: int, change: Callable[[StreamItem], StreamItem]) -> Any:
    def changed(answer: StreamResponse) -> StreamResponse:
        items = [change(item) if item.stream_seq == seq else item for item in answer.items]
        return replace(answer, items=tuple(items))

    return page(changed)


def without(seq: int) -> Any:
    return page(
        lambda answer: replace(
            answer, items=tuple(item for item in answer.items if item.stream_seq != seq)
        )
    )


def receipt(seq: int, change: Callable[[Receipt], Receipt]) -> Any:
    def changed(item: StreamItem) -> StreamItem:
        return replace(item, receipt=change(Receipt.decode(item.receipt or b"")).encode())

    return item(seq, changed)


def msg(seq: int, change: Callable[[Msg], Msg]) -> Any:
    return item(seq, lambda item: replace(item, msg=change(Msg.decode(item.msg)).encode()))


def flipped(raw: bytes, at: int = -1) -> bytes:
    altered = bytearray(raw)
    altered[at] ^= 1
    return bytes(altered)


def proof(change: Callable[[RangeProof], RangeProof]) -> Any:
    return on("/tooling/consistency", lambda _, answer: replace(answer, proof=change(answer.proof)))


def swapped(answer: StreamResponse) -> StreamResponse:
    first, second, *rest = answer.items
    return replace(answer, items=(second, first, *rest))


def doubled(answer: StreamResponse) -> StreamResponse:
    return replace(answer, items=(answer.items[0], *answer.items[:-1]))


def beyond(answer: StreamResponse) -> StreamResponse:
    last = answer.items[-1]
    return replace(answer, items=(*answer.items, replace(last, stream_seq=last.stream_seq + 1)))


def resigned(receipt: Receipt, **changes: Any) -> Receipt:
    return replace(receipt, **changes).signed(SigningKey(h(b"hub")))


PAGES = {
    "a gap": (without(6), "stream_seq 6"),
    "a first item that is left out": (without(5), "stream_seq 5"),
    "items in another order": (page(swapped), "stream_seq 5"),
    "an item twice": (page(doubled), "stream_seq 6"),
    "more items than asked": (page(beyond), "stream_seq 5: expected at most 4 items, got 5"),
    "a page of another label": (page(lambda item: replace(item, label=h(b"x"))), "stream_seq 5"),
    "a page of another range": (page(lambda item: replace(item, from_seq=4)), "stream_seq 5"),
    "a range that was not asked": (page(lambda item: replace(item, to_seq=11)), "stream_seq 5"),
    "an item without receipt": (
        item(7, lambda item: replace(item, receipt=None)), "stream_seq 7"
    ),
    "a receipt that is no receipt": (
        item(7, lambda item: replace(item, receipt=b"\x01")), "stream_seq 7"
    ),
    "a message that is no message": (
        item(7, lambda item: replace(item, msg=b"\x01")), "stream_seq 7"
    ),
    "a cursor that stands still": (
        page(lambda item: replace(item, next_cursor=5)), "start here, got 5"
    ),
    "a cursor that goes back": (
        page(lambda item: replace(item, next_cursor=1)), "start here, got 1"
    ),
    "a cursor that leaps": (page(lambda item: replace(item, next_cursor=10)), "start here, got 10"),
    "a cursor without items": (page(lambda item: replace(item, items=())), "stream_seq 5"),
    "an altered ciphertext": (
        msg(6, lambda item: replace(item, ciphertext=flipped(item.ciphertext, 0))),
        "I1 at stream_seq 6",
    ),
    "an altered message whose hash fits": (
        msg(6, lambda item: replace(
            item, ciphertext=bytes(41), ct_hash=h(bytes(41)))), "stream_seq 6"
    ),
    "a message with another's signature": (
        msg(6, lambda item: replace(item, sig=flipped(item.sig))), "SIG at stream_seq 6"
    ),
    "a message of another label": (
        msg(6, lambda item: replace(item, label=h(b"x"))), "I2 at stream_seq 6"
    ),
    "an altered prev_ack": (msg(6, lambda item: replace(item, prev_ack=0)), "stream_seq 6"),
    "a receipt with a broken signature": (
        receipt(6, lambda item: replace(item, hub_sig=flipped(item.hub_sig))), "SIG at stream_seq 6"
    ),
    "a receipt of another hub": (
        receipt(6, lambda item: item.signed(OTHER)), "SIG at stream_seq 6"
    ),
    "a receipt of another label": (
        receipt(6, lambda item: resigned(item, label=h(b"x"))), "stream_seq 6"
    ),
    "a receipt of another place": (
        receipt(6, lambda item: resigned(item, stream_seq=7)), "stream_seq 6"
    ),
    "a signed root that is not the root": (
        receipt(6, lambda item: resigned(item, mmr_root=h(b"x"))), "I3 at stream_seq 6"
    ),
    "a receipt from before the hub had a key": (
        receipt(6, lambda item: resigned(item, hub_ts=7)), "SIG at stream_seq 6"
    ),
}  # fmt: skip


@pytest.fixture
def session(dishonest_hub: Any, make_session: Callable[..., Any]) -> Any:
    reading_support.fill(
        dishonest_hub, dishonest_hub.log(NAME), SIZE, reading_support.Writer(b"alice")
    )
    return make_session(dishonest_hub.url)


def handed_out(session: Any, hub: Any, detail: str, **requested: Any) -> list[int]:
    """What was handed out before the refusal."""
    result: list[int] = []
    pairs = read(session, hub.labels(NAME), NAME, page_items=4, **requested)
    with pytest.raises(Untrusted, match=detail):
        result.extend(pair.receipt.stream_seq for pair in pairs)
    return result


@pytest.mark.parametrize("name", PAGES)
def test_refuses(name: str, dishonest_hub: Any, session: Any) -> None:
    dishonest_hub.lie, detail = PAGES[name]
    assert handed_out(session, dishonest_hub, detail) == [1, 2, 3, 4]
    assert session.view(dishonest_hub.log(NAME).label, NAME, 0).peaks.size == 4


@pytest.mark.parametrize("name", PAGES)
def test_refuses_it_below_a_view_too(name: str, dishonest_hub: Any, session: Any) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME))
    dishonest_hub.lie, detail = PAGES[name]
    assert handed_out(session, dishonest_hub, detail, from_seq=5) == []


def test_refuses_items_beyond_the_end_that_was_asked(dishonest_hub: Any, session: Any) -> None:
    def more(asked: Any, answer: StreamResponse) -> StreamResponse:
        result: StreamResponse = replace(
            dishonest_hub.stream(replace(asked, to_seq=None, max_items=4)), to_seq=asked.to_seq
        )
        return result

    dishonest_hub.lie = on("/v1/stream", more)
    assert handed_out(
        session, dishonest_hub, "stream_seq 7: expected entries up to 6", to_seq=6
    ) == [
        1,
        2,
        3,
        4,
    ]


def with_proof_changed(change: dict[str, Any], item: Any) -> Any:
    return replace(item, mmr_proof=replace(item.mmr_proof, **change))


def test_refuses_a_proof_that_is_missing_or_wrong(dishonest_hub: Any, session: Any) -> None:
    dishonest_hub.lie = page(lambda item: replace(item, mmr_proof=None))
    detail = "stream_seq 8: the requested proof is missing"
    assert handed_out(session, dishonest_hub, detail, with_proof=True) == [1, 2, 3, 4]
    for change in ({"peaks_after": (h(b"x"),)}, {"path": ()}, {"leaf_hash": h(b"x")}):
        dishonest_hub.lie = page(partial(with_proof_changed, change))
        assert handed_out(session, dishonest_hub, "stream_seq 8", from_seq=5, with_proof=True) == []


PROOFS = {
    "other peaks": lambda item: replace(
        item, peaks_before=tuple(h(b"x") for _ in item.peaks_before)
    ),
    "too few peaks": lambda item: replace(item, peaks_before=item.peaks_before[1:]),
    "too few subtrees": lambda item: replace(item, subtrees_after=item.subtrees_after[:-1]),
    "other subtrees": lambda item: replace(
        item, subtrees_after=(h(b"x"),) * len(item.subtrees_after)
    ),
    "another size": lambda item: replace(item, size=item.size + 1),
    "another start": lambda item: replace(item, from_seq=1, to_seq=0, peaks_before=()),
}


@pytest.mark.parametrize("name", PROOFS)
@pytest.mark.parametrize("known", [3, 10])
def test_refuses_a_proof_before_a_range_with(
    name: str, known: int, dishonest_hub: Any, session: Any
) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME, to_seq=known))
    before = session.state
    dishonest_hub.lie = proof(PROOFS[name])
    assert handed_out(session, dishonest_hub, "stream_seq", from_seq=7, to_seq=8) == []
    assert session.state == before


@pytest.mark.parametrize("name", ["too few subtrees", "other subtrees", "another size"])
def test_refuses_a_proof_to_a_reader_who_knows_nothing_with(
    name: str, dishonest_hub: Any, session: Any
) -> None:
    dishonest_hub.lie = proof(PROOFS[name])
    assert handed_out(session, dishonest_hub, "stream_seq", from_seq=7, to_seq=8) == []


def test_refuses_a_log_that_ends_below_what_was_signed(dishonest_hub: Any, session: Any) -> None:
    list(read(session, dishonest_hub.labels(NAME), NAME))
    lying_hub.fork(dishonest_hub, NAME, 9)
    assert handed_out(session, dishonest_hub, "the hub no longer has 12 entries") == []
    assert (
        handed_out(
            session, dishonest_hub, "stream_seq 9: the log of the hub ends here", from_seq=10
        )
        == []
    )
    dishonest_hub.logs.clear()
    assert handed_out(session, dishonest_hub, "the log of the hub ends here") == []


def test_refuses_another_hub_at_the_address(dishonest_hub: Any, session: Any) -> None:
    pairs = dishonest_hub.log(NAME).pairs
    dishonest_hub.identity = hub_identity.new_identity(OTHER.public, 0, "none")
    dishonest_hub.key = OTHER
    pairs[:] = [(raw, Receipt.decode(item).signed(OTHER).encode()) for raw, item in pairs]
    labels = session.labels(NAME, dishonest_hub.profile)
    with pytest.raises(Untrusted, match="SIG at stream_seq 1"):
        list(read(session, labels, NAME))
