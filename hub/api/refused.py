"""A request the hub does not serve, apart from any message in it (spec 10.6)."""

from __future__ import annotations

from typing import Any

from veen.errors import Code, VeenError


class Refused(VeenError):
    """Carries the code that says why, and the machine-readable detail of it."""

    def __init__(self, code: Code, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail
