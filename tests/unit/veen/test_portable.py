"""What is handed to another process is the same there, frozen and whole."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass

import pytest

from veen.events import RecordEvent
from veen.proofs import InclusionProof
from veen.system.process_pool import Portable
from veen.wire.body import AnyItem


@dataclass(frozen=True, slots=True)
class One(Portable):
    only: int


@dataclass(frozen=True, slots=True)
class More(One):
    other: str | None = None


PROOF = InclusionProof(stream_seq=2, size=3, path=(b"p" * 32,), peaks=(b"q" * 32,))
EVENT = RecordEvent(
    subject_id="u:1", principal_id=b"k" * 32, event_type="t", event_time=7, origin="o",
    payload=AnyItem(b"\xa0"),
)  # fmt: skip


@pytest.mark.parametrize("portable", [One(1), More(2), More(3, "x"), PROOF, EVENT])
def test_it_comes_out_as_it_went_in(portable: Portable) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        document = pickle.loads(pickle.dumps(portable, protocol))
        assert document == portable
        assert type(document) is type(portable)
    assert copy.deepcopy(portable) == portable


def test_what_was_decoded_encodes_to_the_same_bytes_there() -> None:
    raw = PROOF.encode()
    assert pickle.loads(pickle.dumps(InclusionProof.decode(raw))).encode() == raw


def test_it_stays_frozen() -> None:
    document = pickle.loads(pickle.dumps(One(1)))
    with pytest.raises(FrozenInstanceError):
        document.only = 2
