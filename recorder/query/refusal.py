"""What is said of a query that cannot be run: a code of the API, the place, and the way out."""

from __future__ import annotations

from enum import Enum

from veen.errors import VeenError


class Refusal(Enum):
    """Codes of the error model that a descriptor alone can earn (Query API 7.6, 10.1)."""

    INVALID_JSON = "invalid_json"
    INVALID_DESCRIPTOR = "invalid_query_descriptor"
    UNSUPPORTED_VERSION = "unsupported_version"


class BadDescriptor(VeenError, ValueError):
    """A descriptor that is refused before anything of it is recorded or run."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal

    @property
    def code(self) -> str:
        return self.refusal.value


def invalid(message: str) -> BadDescriptor:
    return BadDescriptor(Refusal.INVALID_DESCRIPTOR, message)
