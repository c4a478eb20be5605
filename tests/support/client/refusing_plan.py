"""Plans of a man in the middle: a hub that takes only some messages, or none."""

from __future__ import annotations

from collections.abc import Sequence

from support.client.man_in_the_middle import END, Answer, Cut, Middle, answer
from veen.msg import Msg
from veen.wire.api import (
    BatchRequest,
    BatchResponse,
    BatchResult,
    ErrorEnvelope,
)

BATCH = b"/v1/submit_batch"


def path_of(request: Answer) -> bytes:
    return request.head.split(b" ", 2)[1].split(b"?")[0]


class TakesOnly:
    """Of the messages of a client the hub takes so many, and refuses the others."""

    def __init__(self, client_id: bytes, count: int, error: ErrorEnvelope) -> None:
        self._client_id = client_id
        self._left = count
        self._error = error

    def reply(self, middle: Middle, request: Answer) -> tuple[bytes, bool]:
        messages = BatchRequest.decode(request.body).msgs if path_of(request) == BATCH else ()
        if not messages or Msg.decode(messages[0]).client_id != self._client_id:
            return middle.ask(request.raw).raw, True
        taken, refused = messages[: self._left], messages[self._left :]
        self._left -= len(taken)
        results = _taken(middle, taken) if taken else ()
        results = (*results, *(BatchResult(error=self._error) for _ in refused))
        return answer(200, BatchResponse(results=results).encode()).raw, True


def _taken(middle: Middle, messages: Sequence[bytes]) -> tuple[BatchResult, ...]:
    body = BatchRequest(msgs=tuple(messages)).encode()
    lines = ("POST /v1/submit_batch HTTP/1.1", "Host: hub", "Content-Type: application/cbor")
    head = "\r\n".join((*lines, f"Content-Length: {len(body)}")).encode()
    return BatchResponse.decode(middle.ask(head + END + body).body).results


class TakesNone:
    """Requests that would store a message are not answered; all others are."""

    def reply(self, middle: Middle, request: Answer) -> tuple[bytes, bool]:
        if path_of(request) == BATCH:
            raise Cut
        return middle.ask(request.raw).raw, True
