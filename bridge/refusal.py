"""Why a bundle or a carrier is refused: one stable code for each way it can be wrong (AGB0 4.5)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from veen.errors import Code, Untrusted


class Level(Enum):
    """How deep a check goes; each level includes those before it."""

    COMPLETE = "complete"
    INTACT = "intact"
    VALID = "valid"


class Fault(Enum):
    """What can be wrong, in the order in which it is looked for: (name, level, code).

    A carrier that was not finished is INCOMPLETE before anything else is looked at.
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


_AGAIN: Final = "have it exported again, to another medium"
_FORGED: Final = "import nothing of it, keep the medium, and ask whoever exported it"
_HUB_ASKED: Final = "import nothing of it, keep the medium, and ask whoever runs the source's hub"
_SMALLER: Final = (
    "have it exported in smaller bundles ([export] max_bundle_bytes), or raise max_bundle_bytes "
    "and max_bundle_events of [import], which takes six times as much memory, and import it again"
)
ADVICE: Final = {
    Fault.MEDIUM: "look at the medium, copy what is meant to be there, or " + _AGAIN,
    Fault.TAG_FILE: _AGAIN,
    Fault.CARRIER_FORMAT: _AGAIN,
    Fault.CARRIER_VERSION: "take a newer version of this program",
    Fault.SIGNER: "if it should be trusted, compare it and pin it: veen bridge keys pin",
    Fault.CARRIER_SIG: _FORGED,
    Fault.INCOMPLETE: "bring the media that lack, or " + _AGAIN,
    Fault.VOLUME: _AGAIN,
    Fault.NO_KEY: "give that key, with --key or [import] zone_keys",
    Fault.SEALED: _FORGED,
    Fault.UNPACKED_SIZE: _FORGED,
    Fault.COMPRESSION: _FORGED,
    Fault.BUNDLE_SIZE: _SMALLER,
    Fault.FRAMING: _FORGED,
    Fault.COUNT: _FORGED,
    Fault.BUNDLE_ID: _FORGED,
    Fault.HUB: "if it should be trusted, compare it and pin it: veen bridge keys pin",
    Fault.HUB_KEY: "if the hub took a new key, pin its identity again: veen bridge keys pin",
    Fault.CHECKPOINT: _HUB_ASKED,
    Fault.RANGE: _FORGED,
    Fault.EVENT_FORMAT: _FORGED,
    Fault.PLACE: _FORGED,
    Fault.LEAF: _FORGED,
    Fault.ROOT: _HUB_ASKED,
    Fault.PROOF: _HUB_ASKED,
    Fault.FORK: "the hub has told two histories: keep both media, and ask whoever runs it",
    Fault.MSG_SIG: _HUB_ASKED,
    Fault.RECEIPT_SIG: _HUB_ASKED,
    Fault.METADATA: _FORGED,
    Fault.LEDGER: _FORGED,
    Fault.AGE: "have a newer one exported, or allow more",
}
"""What to do about each."""


class Refused(Untrusted):
    """Nothing of this may be imported; ``seq`` and ``offset`` say where, when that is known.

    In words it is one line: the code, what is wrong, where, and what to do.
    """

    def __init__(
        self, fault: Fault, told: str, *, seq: int | None = None, offset: int | None = None
    ) -> None:
        what = f"{fault.code.value}/{fault.detail_enum}: {told}{_place(seq, offset)}"
        super().__init__(f"{what}; {ADVICE[fault]}")
        self.fault = fault
        self.told = told
        self.seq = seq
        self.offset = offset

    def __reduce__(self) -> tuple[object, ...]:
        return _refused, (self.fault, self.told, self.seq, self.offset)


def _refused(fault: Fault, told: str, seq: int | None, offset: int | None) -> Refused:
    return Refused(fault, told, seq=seq, offset=offset)


def _place(seq: int | None, offset: int | None) -> str:
    where = [f"event {seq}"] if seq is not None else []
    where += [f"byte {offset}"] if offset is not None else []
    return f" (at {', '.join(where)})" if where else ""
