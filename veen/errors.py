"""The errors of the project, and the codes of a hub with their HTTP status (spec 8.2, 10.6)."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final

LATER_RELEASE: Final = "a later release wrote it; run that release, or a later one"
"""What to do about a file of an unknown version."""


class VeenError(Exception):
    """The base class of all errors of this project.

    ``error_code`` is what commands print with ``--json``; if empty, the name of the class.
    """

    error_code: ClassVar[str] = ""


class Refused(VeenError):
    """A command that cannot be executed; the message says what to do."""


class Malformed(VeenError, ValueError):
    """Bytes that are not the canonical encoding of their type."""


class WrongSize(Malformed):
    """Well-formed bytes in which the size of a field is not allowed."""


class WrongVersion(Malformed):
    """Well-formed bytes of another version of the protocol."""


class Untrusted(VeenError):
    """Evidence that does not prove what it claims."""


class BadState(VeenError):
    """A state file of a client that cannot be read; nothing is sent from it."""


class Unopenable(Untrusted):
    """Sealed content that cannot be opened here.

    Readers of a log catch this and nothing narrower: any writer can put such a message into a
    log, and it must not stop the reading of the others.
    """


class Undecryptable(Unopenable):
    """A ciphertext that the given key does not open."""


class BadSeal(Unopenable, Malformed):
    """Sealed content that no key opens: its frame, header, profile or capability is invalid."""


class Code(Enum):
    """Error codes of a hub: those of a MSG, then those of the request around it."""

    FORMAT = "E.FORMAT"
    SIZE = "E.SIZE"
    SIG = "E.SIG"
    CAP = "E.CAP"
    AUTH = "E.AUTH"
    RATE = "E.RATE"
    SEQ = "E.SEQ"
    TIME = "E.TIME"

    BAD_REQUEST = "E.BAD_REQUEST"
    UNAUTHORIZED = "E.UNAUTHORIZED"
    FORBIDDEN = "E.FORBIDDEN"
    NOT_FOUND = "E.NOT_FOUND"
    CONFLICT = "E.CONFLICT"
    LIMIT = "E.LIMIT"
    UNAVAILABLE = "E.UNAVAILABLE"
    VERSION = "E.VERSION"

    @property
    def http_status(self) -> int:
        return _HTTP_STATUS[self]


_HTTP_STATUS: Final = {
    Code.FORMAT: 400,
    Code.TIME: 400,
    Code.CAP: 403,
    Code.AUTH: 403,
    Code.SIG: 409,
    Code.SEQ: 409,
    Code.SIZE: 413,
    Code.RATE: 429,
    Code.BAD_REQUEST: 400,
    Code.VERSION: 400,
    Code.UNAUTHORIZED: 401,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.CONFLICT: 409,
    Code.LIMIT: 413,
    Code.UNAVAILABLE: 503,
}


class Stage(Enum):
    """Stages of admission, in the order in which they run (spec 8.1)."""

    PREFILTER = "prefilter"
    STRUCTURAL = "structural"
    AUTH = "auth"
    COMMIT = "commit"


class Failure(Enum):
    """The rows of the admission table in its order: (detail_enum, stage, code) (spec 8.2)."""

    SIZE_PREFILTER = ("SIZE_PREFILTER", Stage.PREFILTER, Code.SIZE)
    PREFILTER_REJECT = ("PREFILTER_REJECT", Stage.PREFILTER, Code.AUTH)
    CBOR_INVALID = ("CBOR_INVALID", Stage.STRUCTURAL, Code.FORMAT)
    FIELD_SIZE = ("FIELD_SIZE", Stage.STRUCTURAL, Code.SIZE)
    VERSION = ("VERSION", Stage.STRUCTURAL, Code.FORMAT)
    PROFILE = ("PROFILE", Stage.STRUCTURAL, Code.FORMAT)
    # Not in the table of the specification, which asks for this check in 4.2.
    PADDING = ("PADDING", Stage.STRUCTURAL, Code.FORMAT)
    CT_HASH = ("CT_HASH", Stage.STRUCTURAL, Code.FORMAT)
    ATT_ROOT = ("ATT_ROOT", Stage.STRUCTURAL, Code.FORMAT)
    SIG_INVALID = ("SIG_INVALID", Stage.AUTH, Code.SIG)
    CAP_MISSING = ("CAP_MISSING", Stage.AUTH, Code.CAP)
    CAP_INVALID = ("CAP_INVALID", Stage.AUTH, Code.CAP)
    AUTH_REF = ("AUTH_REF", Stage.AUTH, Code.AUTH)
    CAP_TTL = ("CAP_TTL", Stage.AUTH, Code.TIME)
    CAP_RATE = ("CAP_RATE", Stage.AUTH, Code.RATE)
    PREV_ACK = ("PREV_ACK", Stage.COMMIT, Code.SEQ)
    DUPLICATE = ("DUPLICATE", Stage.COMMIT, Code.SEQ)
    CLIENT_SEQ = ("CLIENT_SEQ", Stage.COMMIT, Code.SEQ)
    EPOCH = ("EPOCH", Stage.COMMIT, Code.TIME)

    def __init__(self, detail_enum: str, stage: Stage, code: Code) -> None:
        self.detail_enum = detail_enum
        self.stage = stage
        self.code = code


class Rejected(VeenError):
    """A MSG that the hub did not admit, with its row of the admission table."""

    def __init__(
        self,
        failure: Failure,
        message: str,
        *,
        stream_seq: int | None = None,
        retry_after: int | None = None,
        receipt: bytes | None = None,
    ) -> None:
        super().__init__(f"{failure.code.value}/{failure.detail_enum}: {message}")
        self.failure = failure
        self.message = message
        self.stream_seq = stream_seq
        self.retry_after = retry_after
        self.receipt = receipt
