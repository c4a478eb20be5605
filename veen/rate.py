"""The token bucket that holds a capability to its rate, in whole seconds of hub time (spec 6)."""

from __future__ import annotations

from dataclasses import dataclass

from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(WireMap):
    per_sec: int
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens left at a time. Only accepted messages are debited, so receipts rebuild it."""

    tokens: int
    at: int

    @classmethod
    def full(cls, rate: Rate, now: int) -> Bucket:
        return cls(rate.burst, now)

    def refilled(self, rate: Rate, now: int) -> Bucket:
        """The bucket at ``now``; a clock that went back refills nothing."""
        if now <= self.at:
            return self
        return Bucket(min(rate.burst, self.tokens + rate.per_sec * (now - self.at)), now)

    def debited(self) -> Bucket | None:
        """The bucket after one more message, or None when it is empty."""
        return Bucket(self.tokens - 1, self.at) if self.tokens else None

    def seconds_until_token(self, rate: Rate) -> int | None:
        """How long an empty bucket stays empty; None when it is never refilled."""
        if self.tokens:
            return 0
        return 1 if rate.per_sec and rate.burst else None
