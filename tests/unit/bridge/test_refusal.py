"""A refusal in words: the code, what is wrong, where, and what to do, on one line."""

from __future__ import annotations

import pickle

import pytest

from bridge.errors import ADVICE, CarrierFault, CarrierRefused
from cli.errors import INTEGRITY, fail


@pytest.mark.parametrize("fault", CarrierFault)
def test_every_fault_says_what_to_do_on_its_first_line(
    fault: CarrierFault, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(CarrierRefused(fault, "it is so", seq=5, offset=9)) == INTEGRITY
    (line,) = capsys.readouterr().err.splitlines()
    code = f"{fault.code.value}/{fault.detail_enum}"
    assert line == f"veen: {code}: it is so (at event 5, byte 9); {ADVICE[fault]}"
    assert len(ADVICE[fault]) > 20


def test_a_refusal_is_the_same_in_another_process() -> None:
    refusal = CarrierRefused(CarrierFault.LEAF, "it is so", seq=5)
    document = pickle.loads(pickle.dumps(refusal))
    assert (str(document), document.fault, document.seq) == (str(refusal), CarrierFault.LEAF, 5)
