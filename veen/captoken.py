"""CapToken: who may write to which streams, for how long and at which rate (spec 6).

``TokenBucket`` enforces the rate limit (quota) of a capability, in whole seconds of hub time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from veen.crypto import SigningKey, signature_is_valid
from veen.digest import ht
from veen.errors import Malformed, Untrusted, VeenError
from veen.limits import MAX_CAP_CHAIN
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Bytes64, Version

_NO_LINK = bytes(64)
_SIG_CHAIN_KEY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(WireMap):
    per_sec: int
    burst: int


@dataclass(frozen=True, slots=True)
class TokenBucket:
    """Tokens left at a time. Only accepted messages are debited, so the log determines it."""

    tokens: int
    at: int

    @classmethod
    def full(cls, rate: Rate, now: int) -> TokenBucket:
        return cls(rate.burst, now)

    def refilled(self, rate: Rate, now: int) -> TokenBucket:
        """The bucket at ``now``; a clock that went back refills nothing."""
        if now <= self.at:
            return self
        return TokenBucket(min(rate.burst, self.tokens + rate.per_sec * (now - self.at)), now)

    def debited(self) -> TokenBucket | None:
        """The bucket after one more message, or None when it is empty."""
        return TokenBucket(self.tokens - 1, self.at) if self.tokens else None

    def seconds_until_token(self, rate: Rate) -> int | None:
        """Seconds until the bucket has a token; None when it is never refilled."""
        if self.tokens:
            return 0
        return 1 if rate.per_sec and rate.burst else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow(WireMap):
    stream_ids: tuple[Bytes32, ...]
    ttl: int
    rate: Rate | None = None

    def rule(self) -> None:
        if not self.stream_ids:
            raise Malformed("capability: expected at least one stream_id, got none")
        if list(self.stream_ids) != sorted(set(self.stream_ids)):
            raise Malformed("capability: stream_ids out of order or duplicate")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapToken(WireMap):
    ver: Version = 1
    issuer_pk: Bytes32
    subject_pk: Bytes32
    allow: Allow
    sig_chain: tuple[Bytes64, ...]

    def rule(self) -> None:
        if not 1 <= len(self.sig_chain) <= MAX_CAP_CHAIN:
            raise Malformed(f"capability: expected 1 to 8 signatures, got {len(self.sig_chain)}")

    def auth_ref(self) -> bytes:
        return ht("veen/cap", self.encode())

    def resigned(self, issuer: SigningKey) -> CapToken:
        """The same grant with one more link by its issuer."""
        return replace(self, sig_chain=(*self.sig_chain, _link(self, issuer, self.sig_chain[-1])))

    def verify_chain(self) -> None:
        """Raise Untrusted unless the issuer signed each link over the grant and the link before."""
        if not self.sig_chain:
            raise Untrusted("capability: expected a signature, got none")
        previous = _NO_LINK
        for index, link in enumerate(self.sig_chain):
            if not signature_is_valid(self.issuer_pk, link, self.link_digest(previous)):
                raise Untrusted(f"link {index} of the capability is not signed by its issuer")
            previous = link

    def allows_stream(self, stream_id: bytes) -> bool:
        return stream_id in self.allow.stream_ids

    def expires_at(self, issued_at: int) -> int:
        """The last second at which the capability is valid."""
        return issued_at + self.allow.ttl

    def link_digest(self, previous: bytes) -> bytes:
        """The digest that the link after ``previous`` signs."""
        grant = self.plain()
        del grant[_SIG_CHAIN_KEY]
        return ht("veen/cap-link", cbor.dump(grant), previous)


def issue(
    issuer: SigningKey,
    *,
    subject_pk: bytes,
    stream_ids: Iterable[bytes],
    ttl: int,
    rate: Rate | None = None,
) -> CapToken:
    """Mint a capability; the same inputs give the same bytes."""
    unsigned = CapToken(
        issuer_pk=issuer.public,
        subject_pk=subject_pk,
        allow=Allow(stream_ids=tuple(sorted(set(stream_ids))), ttl=ttl, rate=rate),
        sig_chain=(_NO_LINK,),
    )
    return replace(unsigned, sig_chain=(_link(unsigned, issuer, _NO_LINK),))


def _link(token: CapToken, issuer: SigningKey, previous: bytes) -> bytes:
    if issuer.public != token.issuer_pk:
        raise Untrusted(
            "the key does not belong to the issuer of the capability: only the issuer signs a link"
        )
    return issuer.sign(token.link_digest(previous))


def read_token(path: Path) -> CapToken:
    """A capability from a file, its chain verified."""
    try:
        token = CapToken.decode(path.read_bytes())
        token.verify_chain()
    except VeenError as error:
        raise type(error)(f"{path}: {error}") from error
    return token
