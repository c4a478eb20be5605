"""stream: a page of a label, with receipts and a proof if asked for (spec 10.4.2, 10.5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from flask import Blueprint, Response

from hub.api.edge import SERVER_VERSION, edge
from hub.api.negotiation import answer, small_body
from hub.api.receipts import proof_of
from hub.storage.index import LabelRow
from hub.storage.reader import LogReader
from veen.envelope import StreamItem, StreamRequest, StreamResponse

PAGE_BYTES: Final = 8_388_608

bp = Blueprint("stream", __name__)


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a label that one answer may hold: inclusive bounds and a count."""

    start: int
    end: int
    count: int

    @classmethod
    def of(cls, wanted: StreamRequest, row: LabelRow, max_items: int) -> Page:
        start = wanted.from_seq if wanted.cursor is None else wanted.cursor
        end = row.head_seq if wanted.to_seq is None else min(wanted.to_seq, row.head_seq)
        count = max_items if wanted.max_items is None else min(wanted.max_items, max_items)
        return cls(max(start, 1), end, count)

    def items(self, reader: LogReader, label: bytes, *, receipts: bool) -> Iterator[StreamItem]:
        """At least one item if there is one, and no more than fit into a page."""
        last = min(self.end, self.start + self.count - 1)
        if last < self.start:
            return
        left = PAGE_BYTES
        for found in reader.entries(label, self.start, last):
            left -= len(found.entry.msg_bytes) + len(found.entry.receipt_bytes)
            if left < 0 and found.seq > self.start:
                return
            receipt = found.entry.receipt_bytes if receipts else None
            yield StreamItem(stream_seq=found.seq, msg=found.entry.msg_bytes, receipt=receipt)

    def next_cursor(self, items: tuple[StreamItem, ...]) -> int | None:
        after = items[-1].stream_seq + 1 if items else self.start
        return after if after <= self.end else None


@bp.post("/v1/stream")
def stream() -> Response:
    hub, body = edge(), small_body()
    viewer = hub.access.viewer(body.raw)
    wanted = body.envelope(StreamRequest)
    row = viewer.label(wanted.label)
    page = Page.of(wanted, row, hub.settings.max_page_items)
    items = tuple(page.items(hub.reader, row.label, receipts=bool(wanted.with_receipts)))
    proved = wanted.with_mmr_proof and items
    return answer(
        StreamResponse(
            label=row.label,
            from_seq=page.start,
            to_seq=wanted.to_seq,
            items=items,
            next_cursor=page.next_cursor(items),
            mmr_proof=proof_of(hub, row, items[-1].stream_seq) if proved else None,
            server_version=SERVER_VERSION,
        )
    )
