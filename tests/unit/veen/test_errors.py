"""The tables of errors, row by row as the specification prints them (spec 8.2, 10.6)."""

from __future__ import annotations

import pytest

from veen.errors import (
    BadSeal,
    Code,
    Failure,
    Malformed,
    Rejected,
    Stage,
    Undecryptable,
    Unopenable,
    Untrusted,
    VeenError,
    WrongSize,
    WrongVersion,
)
from veen.invariants import Violation
from veen.limits import BadLimit
from veen.log.entry import CutShort

HTTP = {
    "E.FORMAT": 400,
    "E.TIME": 400,
    "E.CAP": 403,
    "E.AUTH": 403,
    "E.SIG": 409,
    "E.SEQ": 409,
    "E.SIZE": 413,
    "E.RATE": 429,
    "E.BAD_REQUEST": 400,
    "E.UNAUTHORIZED": 401,
    "E.FORBIDDEN": 403,
    "E.NOT_FOUND": 404,
    "E.CONFLICT": 409,
    "E.LIMIT": 413,
    "E.UNAVAILABLE": 503,
    "E.VERSION": 400,
}
ADMISSION = [
    ("prefilter", "E.SIZE", "SIZE_PREFILTER"),
    ("prefilter", "E.AUTH", "PREFILTER_REJECT"),
    ("structural", "E.FORMAT", "CBOR_INVALID"),
    ("structural", "E.SIZE", "FIELD_SIZE"),
    ("structural", "E.FORMAT", "VERSION"),
    ("structural", "E.FORMAT", "PROFILE"),
    # Inserted, as 8.2 allows: 4.2 has every receiver refuse bad padding.
    ("structural", "E.FORMAT", "PADDING"),
    ("structural", "E.FORMAT", "CT_HASH"),
    ("structural", "E.FORMAT", "ATT_ROOT"),
    ("auth", "E.SIG", "SIG_INVALID"),
    ("auth", "E.CAP", "CAP_MISSING"),
    ("auth", "E.CAP", "CAP_INVALID"),
    ("auth", "E.AUTH", "AUTH_REF"),
    ("auth", "E.TIME", "CAP_TTL"),
    ("auth", "E.RATE", "CAP_RATE"),
    ("commit", "E.SEQ", "PREV_ACK"),
    ("commit", "E.SEQ", "DUPLICATE"),
    ("commit", "E.SEQ", "CLIENT_SEQ"),
    ("commit", "E.TIME", "EPOCH"),
]


def test_every_code_has_its_http_status() -> None:
    assert {code.value: code.http_status for code in Code} == HTTP


def test_the_admission_table_has_these_rows_in_this_order() -> None:
    rows = [(item.stage.value, item.code.value, item.detail_enum) for item in Failure]
    assert rows == ADMISSION


def test_stages_stand_in_the_order_in_which_they_run() -> None:
    assert [stage.value for stage in Stage] == ["prefilter", "structural", "auth", "commit"]


@pytest.mark.parametrize("failure", Failure, ids=lambda failure: failure.detail_enum)
def test_a_refusal_carries_its_row_and_says_it(failure: Failure) -> None:
    refusal = Rejected(failure, "for a reason")
    assert refusal.failure is failure
    assert str(refusal) == f"{failure.code.value}/{failure.detail_enum}: for a reason"


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (Malformed, ValueError),
        (WrongSize, Malformed),
        (WrongVersion, Malformed),
        (CutShort, Malformed),
        (Unopenable, Untrusted),
        (Undecryptable, Unopenable),
        (BadSeal, Unopenable),
        (BadSeal, Malformed),
        (Violation, Untrusted),
        (BadLimit, VeenError),
        (Malformed, VeenError),
        (Untrusted, VeenError),
        (Rejected, VeenError),
    ],
)
def test_what_is_caught_with_what(narrow: type, wide: type) -> None:
    assert issubclass(narrow, wide)


def test_malformed_and_untrusted_are_two_things() -> None:
    assert not issubclass(Malformed, Untrusted)
    assert not issubclass(Untrusted, Malformed)
