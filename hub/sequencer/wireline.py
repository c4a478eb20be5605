"""What workers and the sequencer say to each other over a Unix socket.

Both are processes of one hub. A request is one byte that names it, and a body; an answer is a
body. Bodies are cbor2 values, but for submits, whose messages are packed for speed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import cbor2

from hub.admission.verified import Verified
from hub.sequencer.committer import Outcome, Unavailable
from veen.errors import Failure, Rejected

SUBMIT: Final = 1
AUTHORIZE: Final = 2
REGISTER: Final = 3
CHECKPOINT: Final = 4
STATUS: Final = 5
RECORDER_CHECKPOINT: Final = 6
MAX_REQUEST_BYTES: Final = 1 << 30

_SIZE: Final = struct.Struct(">I")
_OUTCOME: Final = struct.Struct(">BI")
_RECEIPT, _REJECTED, _UNAVAILABLE = range(3)


def pack_submit(messages: Sequence[Verified]) -> bytes:
    return b"".join((bytes([SUBMIT]), _SIZE.pack(len(messages)), *(one.pack() for one in messages)))


def unpack_submit(request: bytes) -> list[Verified]:
    (count,) = _SIZE.unpack_from(request, 1)
    at = 1 + _SIZE.size
    messages = []
    for _ in range(count):
        message, at = Verified.unpack(request, at)
        messages.append(message)
    return messages


def pack_outcomes(outcomes: Sequence[Outcome]) -> bytes:
    parts: list[bytes] = []
    for outcome in outcomes:
        kind, body = _pack_outcome(outcome)
        parts += (_OUTCOME.pack(kind, len(body)), body)
    return b"".join(parts)


def unpack_outcomes(answer: bytes) -> list[Outcome]:
    at, outcomes = 0, []
    while at < len(answer):
        kind, size = _OUTCOME.unpack_from(answer, at)
        at += _OUTCOME.size
        outcomes.append(_unpack_outcome(kind, answer[at : at + size]))
        at += size
    return outcomes


def pack(kind: int, body: Any) -> bytes:
    return bytes([kind]) + cbor2.dumps(body)


def unpack(request: bytes) -> Any:
    return cbor2.loads(request[1:])


def rejection(refusal: Rejected) -> list[Any]:
    return [refusal.failure.name, refusal.message, refusal.stream_seq, refusal.retry_after]


def rejected(parts: list[Any]) -> Rejected:
    name, message, stream_seq, retry_after = parts
    return Rejected(Failure[name], message, stream_seq=stream_seq, retry_after=retry_after)


def _pack_outcome(outcome: Outcome) -> tuple[int, bytes]:
    if isinstance(outcome, bytes):
        return _RECEIPT, outcome
    if isinstance(outcome, Rejected):
        return _REJECTED, cbor2.dumps(rejection(outcome))
    return _UNAVAILABLE, str(outcome).encode()


def _unpack_outcome(kind: int, body: bytes) -> Outcome:
    if kind == _RECEIPT:
        return body
    if kind == _REJECTED:
        return rejected(cbor2.loads(body))
    return Unavailable(body.decode())
