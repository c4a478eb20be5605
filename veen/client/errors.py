"""How a hub can fail its client, beside a message it does not admit (``veen.errors.Rejected``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veen.envelope import ErrorEnvelope
from veen.errors import Code, Failure, Rejected, Untrusted, VeenError

_FAILURES = {(one.code.value, one.detail_enum): one for one in Failure}


class Unreachable(VeenError):
    """A hub that did not answer, or answered nothing that is an answer."""


class HubRefused(VeenError):
    """A hub that said no to a request, with its code."""

    def __init__(
        self, code: str, message: str, detail: dict[str, Any], retry_after: int | None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.detail = detail
        self.retry_after = retry_after

    @property
    def is_about_access(self) -> bool:
        return self.code in (Code.UNAUTHORIZED.value, Code.FORBIDDEN.value)


class StateLost(VeenError):
    """The log holds what this client does not remember: its directory is a copy, or older."""


class Fork(Untrusted):
    """A hub signed two histories; ``evidence`` is where the two receipts are kept."""

    def __init__(self, message: str, evidence: Path) -> None:
        super().__init__(f"{message}; the evidence is in {evidence}")
        self.evidence = evidence


def refusal(envelope: ErrorEnvelope) -> Rejected | HubRefused:
    """The error an envelope tells of: about a message where it names a row of the table."""
    detail = envelope.detail or {}
    failure = _FAILURES.get((envelope.code, str(detail.get("detail_enum"))))
    if failure is None:
        return HubRefused(envelope.code, envelope.message, detail, envelope.retry_after)
    return Rejected(
        failure,
        envelope.message,
        stream_seq=_of(int, detail.get("stream_seq")),
        retry_after=envelope.retry_after,
        receipt=_of(bytes, detail.get("receipt")),
    )


def _of(wanted: type, value: Any) -> Any:
    return value if type(value) is wanted else None
