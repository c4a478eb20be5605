"""Requests signed with a principal's key: whose they are, and that each is taken once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Final

from hub.policy import Policy, Principal
from veen.http_signature import KEPT_SEC, NotSigned, SignatureVerifier, SignedMessage

_REMEMBERED: Final = 65_536
"""Of each principal: one that signs too often keeps no other from being answered."""


class SignatureGuard:
    """Tells whose signature a request carries, and takes each signature once.

    How long one is remembered goes by ``steady``, which no setting of the clock moves: by a clock
    that ran ahead for a moment it would be remembered until then, and fill the memory.
    """

    def __init__(self, policy: Policy, steady: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._steady = steady
        self._verifier = SignatureVerifier(self._key_of)
        self._taken: defaultdict[str, OrderedDict[bytes, float]] = defaultdict(OrderedDict)
        self._guard = threading.Lock()

    def principal(self, message: SignedMessage, body: bytes) -> Principal:
        signed = self._verifier.verify(message, body)
        principal = self._policy.by_name(signed.key_id)
        if principal is None:
            raise NotSigned("the signature names no principal")
        self._take(principal.name, signed.covered)
        return principal

    def _key_of(self, name: str) -> bytes | None:
        principal = self._policy.by_name(name)
        return principal.public_key if principal else None

    def _take(self, name: str, signed: bytes) -> None:
        """Refuse one that was taken before. Whatever is forgotten is too old to be taken."""
        now = self._steady()
        with self._guard:
            taken = self._taken[name]
            while taken and next(iter(taken.values())) < now:
                taken.popitem(last=False)
            if signed in taken:
                raise NotSigned("the signature was used before: sign again, with a new nonce")
            if len(taken) >= _REMEMBERED:
                raise NotSigned(
                    f"principal {name} signed {_REMEMBERED} requests within {KEPT_SEC} s: ask "
                    "again later"
                )
            taken[signed] = now + KEPT_SEC
