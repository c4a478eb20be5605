"""Pages of a label: asked for one ahead, and refused where they are not what was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from veen.client.hub_api import HubApi
from veen.client.pair import Log
from veen.envelope import StreamItem, StreamRequest, StreamResponse
from veen.errors import Untrusted
from veen.proof import MmrProof

PAGE_ITEMS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What to read of a label, both ends included; without an end, all there is."""

    from_seq: int = 1
    to_seq: int | None = None
    with_proof: bool = False
    page_items: int = PAGE_ITEMS


@dataclass(frozen=True, slots=True)
class Page:
    """Items that follow each other, each with a receipt, none of them verified yet."""

    items: tuple[StreamItem, ...]
    proof: MmrProof | None
    following: int | None
    """Where the next page begins, if there is one."""


def pages(api: HubApi, log: Log, wanted: Range) -> Iterator[Page]:
    """One page is fetched while the caller works on the one before, and never more."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="veen-page") as pool:
        page = _fetch(api, log, wanted, wanted.from_seq)
        while page.following is not None:
            ahead = pool.submit(_fetch, api, log, wanted, page.following)
            yield page
            page = ahead.result()
        yield page


def _fetch(api: HubApi, log: Log, wanted: Range, start: int) -> Page:
    request = StreamRequest(
        label=log.label,
        from_seq=start,
        to_seq=wanted.to_seq,
        max_items=wanted.page_items,
        with_receipts=True,
        with_mmr_proof=wanted.with_proof or None,
    )
    answer = api.stream(request)
    _refuse_other(answer, log, request)
    _refuse_items(answer, log, request)
    _refuse_standing_still(answer, log, request)
    return Page(answer.items, answer.mmr_proof, answer.next_cursor)


def _refuse_other(answer: StreamResponse, log: Log, wanted: StreamRequest) -> None:
    if answer.label != wanted.label:
        raise Untrusted(f"{log.at(wanted.from_seq)}: the page is of label {answer.label.hex()}")
    if (answer.from_seq, answer.to_seq) != (wanted.from_seq, wanted.to_seq):
        raise Untrusted(
            f"{log.at(wanted.from_seq)}: the page is of {answer.from_seq} to {answer.to_seq}"
        )


def _refuse_items(answer: StreamResponse, log: Log, wanted: StreamRequest) -> None:
    if wanted.max_items is not None and len(answer.items) > wanted.max_items:
        raise Untrusted(
            f"{log.at(wanted.from_seq)}: {len(answer.items)} items, {wanted.max_items} were asked"
        )
    for due, item in enumerate(answer.items, wanted.from_seq):
        if item.stream_seq != due:
            raise Untrusted(f"{log.at(due)}: {item.stream_seq} stands in its place")
        if wanted.to_seq is not None and due > wanted.to_seq:
            raise Untrusted(f"{log.at(due)}: it was not asked for, {wanted.to_seq} was the last")
        if item.receipt is None:
            raise Untrusted(f"{log.at(due)}: it came without its receipt")
    if wanted.with_mmr_proof and answer.items and answer.mmr_proof is None:
        raise Untrusted(f"{log.at(answer.items[-1].stream_seq)}: the proof asked for is missing")


def _refuse_standing_still(answer: StreamResponse, log: Log, wanted: StreamRequest) -> None:
    following, due = answer.next_cursor, wanted.from_seq + len(answer.items)
    if following is None:
        return
    if not answer.items or following != due:
        raise Untrusted(f"{log.at(due)}: the page ends here and goes on at {following}")
    if wanted.to_seq is not None and following > wanted.to_seq:
        raise Untrusted(f"{log.at(due)}: the page goes on beyond {wanted.to_seq}")
