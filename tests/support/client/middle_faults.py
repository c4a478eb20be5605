"""What a man in the middle can do to a request and its answer."""

from __future__ import annotations

import time
from typing import Any

import cbor2

from support.client.man_in_the_middle import Answer, Cut, Disturbed, answer

BATCH = b"/v1/submit_batch"
STATUSES = (400, 401, 403, 404, 409, 413, 429, 502, 503, 504)
ROWS = {
    "E.FORMAT": ("CBOR_INVALID", "VERSION", "PROFILE", "PADDING", "CT_HASH", "ATT_ROOT"),
    "E.SIZE": ("SIZE_PREFILTER", "FIELD_SIZE"),
    "E.SIG": ("SIG_INVALID",),
    "E.CAP": ("CAP_MISSING", "CAP_INVALID"),
    "E.AUTH": ("PREFILTER_REJECT", "AUTH_REF"),
    "E.RATE": ("CAP_RATE",),
    "E.SEQ": ("PREV_ACK", "DUPLICATE", "CLIENT_SEQ"),
    "E.TIME": ("CAP_TTL", "EPOCH"),
}
CODES = (
    *ROWS, "E.BAD_REQUEST", "E.UNAUTHORIZED", "E.FORBIDDEN", "E.NOT_FOUND", "E.CONFLICT",
    "E.LIMIT", "E.UNAVAILABLE", "E.VERSION",
)  # fmt: skip


def lose_request(exchange: Disturbed) -> bytes:
    raise Cut


def lose_answer(exchange: Disturbed) -> bytes:
    exchange.ask()
    raise Cut


def hold_back(exchange: Disturbed) -> bytes:
    """The client hears nothing; the request arrives after others that were sent later."""
    exchange.held.append((exchange.chance.randint(0, 5), exchange.request.raw))
    raise Cut


def delay(exchange: Disturbed) -> bytes:
    time.sleep(exchange.chance.uniform(0, 0.01))
    return exchange.ask().raw


def double(exchange: Disturbed) -> bytes:
    answers = [exchange.ask() for _ in range(exchange.chance.randint(2, 3))]
    return exchange.chance.choice(answers).raw


def cut_short(exchange: Disturbed) -> bytes:
    raw = exchange.ask().raw
    return raw[: exchange.chance.randrange(len(raw))]


def cut_body(exchange: Disturbed) -> bytes:
    """Shorter, and its length says so."""
    body = exchange.ask().body
    return answer(200, body[: exchange.chance.randrange(len(body) + 1)]).raw


def flip_bit(exchange: Disturbed) -> bytes:
    return _flipped(exchange, exchange.ask().raw)


def flip_bit_of_body(exchange: Disturbed) -> bytes:
    result = exchange.ask()
    return Answer(result.head, _flipped(exchange, result.body)).raw if result.body else result.raw


def flip_bit_of_request(exchange: Disturbed) -> bytes:
    if not exchange.request.body:
        raise Cut
    raw = Answer(exchange.request.head, _flipped(exchange, exchange.request.body)).raw
    return exchange.middle.ask(raw).raw


def replay_older(exchange: Disturbed) -> bytes:
    """What the hub once said, whether or not it hears what is asked now."""
    if exchange.chance.random() < 0.5:
        exchange.ask()
    older = exchange.memory.answers[exchange.path]
    if not older:
        raise Cut
    return exchange.chance.choice(older).raw


def swap_receipt(exchange: Disturbed) -> bytes:
    """One good receipt in the place of another."""
    value = exchange.ask()
    if exchange.path != BATCH or not value.is_ok or not exchange.memory.receipts:
        return value.raw
    body = cbor2.loads(value.body)
    exchange.chance.choice(body[2]).update({1: exchange.chance.choice(exchange.memory.receipts)})
    body[2] = [{1: result[1]} if 1 in result else result for result in body[2]]
    return answer(200, cbor2.dumps(body)).raw


def refuse_request(exchange: Disturbed) -> bytes:
    """The hub said something else, or was never asked."""
    if exchange.chance.random() < 0.5:
        exchange.ask()
    return answer(exchange.chance.choice(STATUSES), cbor2.dumps(_error(exchange))).raw


def refuse_message(exchange: Disturbed) -> bytes:
    result = exchange.ask()
    if exchange.path != BATCH or not result.is_ok:
        return result.raw
    body = cbor2.loads(result.body)
    body[2][exchange.chance.randrange(len(body[2]))] = {2: _error(exchange)}
    return answer(200, cbor2.dumps(body)).raw


def accept_all(exchange: Disturbed) -> bytes:
    """Where the hub said no, he says yes, with receipts of other things."""
    result = exchange.ask()
    if exchange.path != BATCH or not exchange.memory.receipts:
        return result.raw
    count = len(cbor2.loads(exchange.request.body)[2])
    results = [{1: exchange.chance.choice(exchange.memory.receipts)} for _ in range(count)]
    return answer(200, cbor2.dumps({1: 1, 2: results})).raw


def _error(exchange: Disturbed) -> dict[int, Any]:
    code = exchange.chance.choice(CODES)
    detail: dict[str, Any] = {}
    if code in ROWS:
        detail["detail_enum"] = exchange.chance.choice(ROWS[code])
    if exchange.memory.receipts and exchange.chance.random() < 0.5:
        receipt = exchange.chance.choice(exchange.memory.receipts)
        detail |= {"receipt": cbor2.dumps(receipt), "stream_seq": receipt[2]}
    error = {1: 1, 2: code, 3: "no", 4: dict(sorted(detail.items(), key=_by_encoding))}
    return error | (
        {5: exchange.chance.choice((0, 1, 10**9))} if exchange.chance.random() < 0.5 else {}
    )


def _by_encoding(item: tuple[str, Any]) -> bytes:
    return cbor2.dumps(item[0])


def _flipped(exchange: Disturbed, raw: bytes) -> bytes:
    at = exchange.chance.randrange(8 * len(raw))
    altered = bytearray(raw)
    altered[at // 8] ^= 1 << at % 8
    return bytes(altered)


FAULTS = (
    lose_request, lose_answer, hold_back, delay, double, cut_short, cut_body, flip_bit,
    flip_bit_of_body, flip_bit_of_request, replay_older, swap_receipt, refuse_request,
    refuse_message, accept_all,
)  # fmt: skip
