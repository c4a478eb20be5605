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


def lose_request(one: Disturbed) -> bytes:
    raise Cut


def lose_answer(one: Disturbed) -> bytes:
    one.ask()
    raise Cut


def hold_back(one: Disturbed) -> bytes:
    """The client hears nothing; the request arrives after others that were sent later."""
    one.held.append((one.chance.randint(0, 5), one.request.raw))
    raise Cut


def delay(one: Disturbed) -> bytes:
    time.sleep(one.chance.uniform(0, 0.01))
    return one.ask().raw


def double(one: Disturbed) -> bytes:
    answers = [one.ask() for _ in range(one.chance.randint(2, 3))]
    return one.chance.choice(answers).raw


def cut_short(one: Disturbed) -> bytes:
    raw = one.ask().raw
    return raw[: one.chance.randrange(len(raw))]


def cut_body(one: Disturbed) -> bytes:
    """Shorter, and its length says so."""
    body = one.ask().body
    return answer(200, body[: one.chance.randrange(len(body) + 1)]).raw


def flip_bit(one: Disturbed) -> bytes:
    return _flipped(one, one.ask().raw)


def flip_bit_of_body(one: Disturbed) -> bytes:
    result = one.ask()
    return Answer(result.head, _flipped(one, result.body)).raw if result.body else result.raw


def flip_bit_of_request(one: Disturbed) -> bytes:
    if not one.request.body:
        raise Cut
    raw = Answer(one.request.head, _flipped(one, one.request.body)).raw
    return one.middle.ask(raw).raw


def replay_older(one: Disturbed) -> bytes:
    """What the hub once said, whether or not it hears what is asked now."""
    if one.chance.random() < 0.5:
        one.ask()
    older = one.memory.answers[one.path]
    if not older:
        raise Cut
    return one.chance.choice(older).raw


def swap_receipt(one: Disturbed) -> bytes:
    """One good receipt in the place of another."""
    value = one.ask()
    if one.path != BATCH or not value.is_ok or not one.memory.receipts:
        return value.raw
    said = cbor2.loads(value.body)
    one.chance.choice(said[2]).update({1: one.chance.choice(one.memory.receipts)})
    said[2] = [{1: result[1]} if 1 in result else result for result in said[2]]
    return answer(200, cbor2.dumps(said)).raw


def refuse_request(one: Disturbed) -> bytes:
    """The hub said something else, or was never asked."""
    if one.chance.random() < 0.5:
        one.ask()
    return answer(one.chance.choice(STATUSES), cbor2.dumps(_error(one))).raw


def refuse_message(one: Disturbed) -> bytes:
    result = one.ask()
    if one.path != BATCH or not result.is_ok:
        return result.raw
    said = cbor2.loads(result.body)
    said[2][one.chance.randrange(len(said[2]))] = {2: _error(one)}
    return answer(200, cbor2.dumps(said)).raw


def accept_all(one: Disturbed) -> bytes:
    """Where the hub said no, he says yes, with receipts of other things."""
    result = one.ask()
    if one.path != BATCH or not one.memory.receipts:
        return result.raw
    count = len(cbor2.loads(one.request.body)[2])
    results = [{1: one.chance.choice(one.memory.receipts)} for _ in range(count)]
    return answer(200, cbor2.dumps({1: 1, 2: results})).raw


def _error(one: Disturbed) -> dict[int, Any]:
    code = one.chance.choice(CODES)
    detail: dict[str, Any] = {}
    if code in ROWS:
        detail["detail_enum"] = one.chance.choice(ROWS[code])
    if one.memory.receipts and one.chance.random() < 0.5:
        receipt = one.chance.choice(one.memory.receipts)
        detail |= {"receipt": cbor2.dumps(receipt), "stream_seq": receipt[2]}
    said = {1: 1, 2: code, 3: "no", 4: dict(sorted(detail.items(), key=_by_encoding))}
    return said | ({5: one.chance.choice((0, 1, 10**9))} if one.chance.random() < 0.5 else {})


def _by_encoding(item: tuple[str, Any]) -> bytes:
    return cbor2.dumps(item[0])


def _flipped(one: Disturbed, raw: bytes) -> bytes:
    at = one.chance.randrange(8 * len(raw))
    altered = bytearray(raw)
    altered[at // 8] ^= 1 << at % 8
    return bytes(altered)


FAULTS = (
    lose_request, lose_answer, hold_back, delay, double, cut_short, cut_body, flip_bit,
    flip_bit_of_body, flip_bit_of_request, replay_older, swap_receipt, refuse_request,
    refuse_message, accept_all,
)  # fmt: skip
