"""The bodies of requests, read in the event loop before anything else is done with them.

A slow body holds no thread. A body has a size limit that depends on its route; the bodies that a
worker holds together have one, too, with the responses that their clients have not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hub.api.content import SMALL_BODY, ContentFormat
from hub.api.submit import MAX_BATCH_BYTES, json_batch_bound, submit_bound
from hub.sequencer.committer import Unavailable
from hub.web.message import Receive, RequestHead
from veen.limits import Limits

SUBMIT: Final = "/v1/submit"
SUBMIT_BATCH: Final = "/v1/submit_batch"
MAX_HELD_BYTES: Final = 4 * MAX_BATCH_BYTES


class Disconnected(Exception):
    """The client has gone before its body was complete."""


class HeldBytes:
    """The bytes of one body and its response, counted in the memory of the worker."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.count = 0

    def add(self, count: int) -> None:
        """Count bytes, or raise Unavailable above the limit."""
        self._memory.take(count)
        self.count += count

    def add_receipts(self, count: int) -> None:
        """Count the bytes of a response that is not refused: its messages are committed."""
        self._memory.held += count
        self.count += count


class BodyMemory:
    """The bytes of all bodies and responses of a worker, with a limit. For one event loop."""

    def __init__(self, limit: int = MAX_HELD_BYTES) -> None:
        self._limit = limit
        self.held = 0

    def take(self, count: int) -> None:
        if self.held + count > self._limit:
            raise Unavailable(
                f"the worker holds {self.held} bytes of requests and responses, expected at most "
                f"{self._limit} with {count} more: retry"
            )
        self.held += count

    @contextmanager
    def holding(self) -> Iterator[HeldBytes]:
        held = HeldBytes(self)
        try:
            yield held
        finally:
            self.held -= held.count


def body_bound(head: RequestHead, limits: Limits) -> int:
    """The size limit of a body; the route refuses a larger one by its first bytes."""
    if head.path == SUBMIT:
        return submit_bound(limits, head.format)
    if head.path == SUBMIT_BATCH:
        is_cbor = head.format is ContentFormat.CBOR
        return MAX_BATCH_BYTES if is_cbor else json_batch_bound(limits)
    return SMALL_BODY


async def read_body(receive: Receive, head: RequestHead, bound: int, held: HeldBytes) -> bytes:
    """The body, or the first ``bound + 1`` bytes of a larger one.

    Nothing is read of a body whose announced size is above ``bound``.
    """
    if head.announced is not None and head.announced > bound:
        return b""
    parts: list[bytes] = []
    left, more = bound + 1, True
    while more and left > 0:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part, more = message.get("body", b""), message.get("more_body", False)
        held.add(len(part))
        parts.append(part[:left])
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
