"""Refusals of bundles and carriers, one stable code for each fault (AGB0 4.5), and safe text.

Text from a medium is made safe to show: a single line of ASCII without control characters. A hash
can be shown as words that two people can compare by telephone (proquint).
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final

from veen.errors import Code, Untrusted

NAME: Final = 200
"""The maximum length of a name in a message."""
_AGAIN: Final = "have it exported again, to another medium"
_FORGED: Final = "import nothing of it, keep the medium, and ask whoever exported it"
_HUB_ASKED: Final = "import nothing of it, keep the medium, and ask whoever runs the source's hub"
_SMALLER: Final = (
    "have it exported in smaller bundles ([export] max_bundle_bytes), or raise max_bundle_bytes "
    "and max_bundle_events of [import], which takes six times as much memory, and import it again"
)
_CONSONANTS: Final = "bdfghjklmnprstvz"
_VOWELS: Final = "aiou"
_COUNT: Final = 6


def printable(text: str, most: int = NAME) -> str:
    shown = text.encode("unicode_escape", "backslashreplace").decode("ascii")
    return shown if len(shown) <= most else f"{shown[:most]}..."


class Level(Enum):
    """The depth of a verification; each level includes the previous ones."""

    COMPLETE = "complete"
    INTACT = "intact"
    VALID = "valid"


class CarrierFault(Enum):
    """Faults, in the order in which they are checked: (name, level, code).

    An unfinished carrier is INCOMPLETE before anything else is checked.
    """

    MEDIUM = ("MEDIUM", Level.COMPLETE, Code.FORMAT)
    TAG_FILE = ("TAG_FILE", Level.INTACT, Code.SIG)
    CARRIER_FORMAT = ("CARRIER_FORMAT", Level.COMPLETE, Code.FORMAT)
    CARRIER_VERSION = ("CARRIER_VERSION", Level.COMPLETE, Code.FORMAT)
    SIGNER = ("SIGNER", Level.VALID, Code.AUTH)
    CARRIER_SIG = ("CARRIER_SIG", Level.VALID, Code.SIG)
    INCOMPLETE = ("INCOMPLETE", Level.COMPLETE, Code.SIZE)
    VOLUME = ("VOLUME", Level.INTACT, Code.SIG)
    NO_KEY = ("NO_KEY", Level.VALID, Code.AUTH)
    SEALED = ("SEALED", Level.VALID, Code.SIG)
    UNPACKED_SIZE = ("UNPACKED_SIZE", Level.VALID, Code.SIZE)
    COMPRESSION = ("COMPRESSION", Level.VALID, Code.FORMAT)
    BUNDLE_SIZE = ("BUNDLE_SIZE", Level.VALID, Code.SIZE)
    FRAMING = ("FRAMING", Level.VALID, Code.FORMAT)
    COUNT = ("COUNT", Level.VALID, Code.SEQ)
    BUNDLE_ID = ("BUNDLE_ID", Level.VALID, Code.SIG)
    HUB = ("HUB", Level.VALID, Code.AUTH)
    HUB_KEY = ("HUB_KEY", Level.VALID, Code.AUTH)
    CHECKPOINT = ("CHECKPOINT", Level.VALID, Code.SIG)
    RANGE = ("RANGE", Level.VALID, Code.SEQ)
    EVENT_FORMAT = ("EVENT_FORMAT", Level.VALID, Code.FORMAT)
    PLACE = ("PLACE", Level.VALID, Code.SEQ)
    LEAF = ("LEAF", Level.VALID, Code.SIG)
    ROOT = ("ROOT", Level.VALID, Code.SEQ)
    PROOF = ("PROOF", Level.VALID, Code.SEQ)
    FORK = ("FORK", Level.VALID, Code.SEQ)
    MSG_SIG = ("MSG_SIG", Level.VALID, Code.SIG)
    RECEIPT_SIG = ("RECEIPT_SIG", Level.VALID, Code.SIG)
    METADATA = ("METADATA", Level.VALID, Code.SIG)
    LEDGER = ("LEDGER", Level.VALID, Code.SEQ)
    AGE = ("AGE", Level.VALID, Code.TIME)

    def __init__(self, detail_enum: str, level: Level, code: Code) -> None:
        self.detail_enum = detail_enum
        self.level = level
        self.code = code


ADVICE: Final = {
    CarrierFault.MEDIUM: "look at the medium, copy what is meant to be there, or " + _AGAIN,
    CarrierFault.TAG_FILE: _AGAIN,
    CarrierFault.CARRIER_FORMAT: _AGAIN,
    CarrierFault.CARRIER_VERSION: "take a newer version of this program",
    CarrierFault.SIGNER: "if it should be trusted, compare it and pin it: veen bridge keys pin",
    CarrierFault.CARRIER_SIG: _FORGED,
    CarrierFault.INCOMPLETE: "bring the media that lack, or " + _AGAIN,
    CarrierFault.VOLUME: _AGAIN,
    CarrierFault.NO_KEY: "give that key, with --key or [import] zone_keys",
    CarrierFault.SEALED: _FORGED,
    CarrierFault.UNPACKED_SIZE: _FORGED,
    CarrierFault.COMPRESSION: _FORGED,
    CarrierFault.BUNDLE_SIZE: _SMALLER,
    CarrierFault.FRAMING: _FORGED,
    CarrierFault.COUNT: _FORGED,
    CarrierFault.BUNDLE_ID: _FORGED,
    CarrierFault.HUB: "if it should be trusted, compare it and pin it: veen bridge keys pin",
    CarrierFault.HUB_KEY: "if the hub took a new key, pin its identity again: veen bridge keys pin",
    CarrierFault.CHECKPOINT: _HUB_ASKED,
    CarrierFault.RANGE: _FORGED,
    CarrierFault.EVENT_FORMAT: _FORGED,
    CarrierFault.PLACE: _FORGED,
    CarrierFault.LEAF: _FORGED,
    CarrierFault.ROOT: _HUB_ASKED,
    CarrierFault.PROOF: _HUB_ASKED,
    CarrierFault.FORK: "the hub signed two histories: store both media, and ask its operator",
    CarrierFault.MSG_SIG: _HUB_ASKED,
    CarrierFault.RECEIPT_SIG: _HUB_ASKED,
    CarrierFault.METADATA: _FORGED,
    CarrierFault.LEDGER: _FORGED,
    CarrierFault.AGE: "have a newer one exported, or allow more",
}
"""The advice for each fault."""


class CarrierRefused(Untrusted):
    """A bundle or carrier that must not be imported; ``seq`` and ``offset`` say where, if known.

    As text it is one line: the code, what is wrong, where, and what to do.
    """

    error_code: ClassVar[str] = "REFUSED"

    def __init__(
        self, fault: CarrierFault, detail: str, *, seq: int | None = None, offset: int | None = None
    ) -> None:
        what = f"{fault.code.value}/{fault.detail_enum}: {detail}{_place(seq, offset)}"
        super().__init__(f"{what}; {ADVICE[fault]}")
        self.fault = fault
        self.detail = detail
        self.seq = seq
        self.offset = offset

    def __reduce__(self) -> tuple[object, ...]:
        return _refused, (self.fault, self.detail, self.seq, self.offset)


def _refused(
    fault: CarrierFault, value: str, seq: int | None, offset: int | None
) -> CarrierRefused:
    return CarrierRefused(fault, value, seq=seq, offset=offset)


def _place(seq: int | None, offset: int | None) -> str:
    where = [f"event {seq}"] if seq is not None else []
    where += [f"byte {offset}"] if offset is not None else []
    return f" (at {', '.join(where)})" if where else ""


def words(digest: bytes) -> str:
    """Six words of five letters for the first 96 bits."""
    return " ".join(_word(digest[at : at + 2]) for at in range(0, 2 * _COUNT, 2))


def _word(two: bytes) -> str:
    bits = int.from_bytes(two, "big")
    return (
        _CONSONANTS[bits >> 12]
        + _VOWELS[bits >> 10 & 3]
        + _CONSONANTS[bits >> 6 & 15]
        + _VOWELS[bits >> 4 & 3]
        + _CONSONANTS[bits & 15]
    )
