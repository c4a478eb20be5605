"""Errors of the query service: the codes of the error model and their HTTP status (Query API 7.6).

An error about a query names the code, the position in the query, and the remedy.
"""

from __future__ import annotations

from enum import Enum

from veen.errors import VeenError


class DescriptorFault(Enum):
    """Codes of the error model for an invalid descriptor (Query API 7.6, 10.1)."""

    INVALID_JSON = "invalid_json"
    INVALID_DESCRIPTOR = "invalid_query_descriptor"
    UNSUPPORTED_VERSION = "unsupported_version"


class BadDescriptor(VeenError, ValueError):
    """A descriptor that is refused before anything of it is recorded or run."""

    def __init__(self, refusal: DescriptorFault, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal

    @property
    def code(self) -> str:
        return self.refusal.value


def invalid(message: str) -> BadDescriptor:
    return BadDescriptor(DescriptorFault.INVALID_DESCRIPTOR, message)


class ErrorCode(Enum):
    INVALID_JSON = ("invalid_json", 400)
    INVALID_QUERY_DESCRIPTOR = ("invalid_query_descriptor", 400)
    UNSUPPORTED_VERSION = ("unsupported_version", 400)
    UNAUTHORIZED = ("unauthorized", 401)
    FORBIDDEN_SCOPE = ("forbidden_scope", 403)
    QUERY_NOT_FOUND = ("query_not_found", 404)
    DUPLICATE_QUERY_ID = ("duplicate_query_id", 409)
    RESULT_NOT_READY = ("result_not_ready", 425)
    EXECUTION_FAILED = ("execution_failed", 500)
    INTERNAL_ERROR = ("internal_error", 500)

    def __init__(self, code: str, status: int) -> None:
        self.code = code
        self.status = status


_BY_NAME = {error.code: error for error in ErrorCode}


def code_of(name: str) -> ErrorCode:
    return _BY_NAME[name]


class Refusal(VeenError):
    """An error response.

    ``status`` differs from that of the code only for a body that is too large (413), an unknown
    method or path, and a service that cannot record for now (503).
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        status: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or code.status
        self.retry_after = retry_after


def not_found() -> Refusal:
    """The same answer for a missing query and for another principal's."""
    return Refusal(ErrorCode.QUERY_NOT_FOUND, "no query or result of yours has this id")


def unavailable(message: str) -> Refusal:
    return Refusal(ErrorCode.INTERNAL_ERROR, message, status=503, retry_after=2)
