"""Both signatures of many pairs, on two cores where there are two."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from veen.client.pair import Pair
from veen.client.session import Session
from veen.errors import Untrusted
from veen.invariants import Rules, Violation, verify_signatures
from veen.label import EpochLabels
from veen.receipt import Receipt


class Signatures:
    """``rules`` are those of the hub's keys as they are known by now."""

    def __init__(self, session: Session, labels: EpochLabels, beside: Executor) -> None:
        self._session = session
        self._labels = labels
        self._beside = beside
        self.rules = session.rules(labels)

    def verify(self, pairs: Sequence[Pair]) -> None:
        """Half of them in another thread: libsodium lets go of the interpreter meanwhile."""
        half = len(pairs) // 2
        others = self._beside.submit(_signed, pairs[half:], self.rules)
        count = _signed(pairs[:half], self.rules)
        self._verify_one_by_one(pairs[count:half])
        self._verify_one_by_one(pairs[half + others.result() :])

    def _verify_one_by_one(self, pairs: Sequence[Pair]) -> None:
        for pair in pairs:
            try:
                verify_signatures(pair.msg, pair.receipt, self.rules)
            except Violation:
                if not self._is_of_new_key(pair.receipt):
                    raise
                verify_signatures(pair.msg, pair.receipt, self.rules)

    def _is_of_new_key(self, receipt: Receipt) -> bool:
        """A hub may have taken a new key since we last asked for its identity."""
        if not is_signed(self._session, receipt):
            return False
        known, self.rules = self.rules, self._session.rules(self._labels)
        return self.rules.hub != known.hub


def is_signed(session: Session, receipt: Receipt) -> bool:
    try:
        session.verify_receipt(receipt)
    except Untrusted:
        return False
    return True


def _signed(pairs: Sequence[Pair], rules: Rules) -> int:
    """How many pairs, from the first on, have the signatures they need."""
    for count, pair in enumerate(pairs):
        try:
            verify_signatures(pair.msg, pair.receipt, rules)
        except Violation:
            return count
    return len(pairs)
