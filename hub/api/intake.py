"""The worker's half of admission: prefilter, structure and signature, then the sequencer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hub.admission.prefilter import prefilter
from hub.admission.signature import signed
from hub.admission.structural import structural
from hub.admission.verified import Verified
from hub.sequencer.client import SequencerClient
from hub.sequencer.committer import Outcome, Unavailable
from veen.errors import Rejected
from veen.limits import Limits
from veen.profile import Profile


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of one message, and as much of it as was understood."""

    size: int
    verified: Verified | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Taking:
    """A group of messages that came in one request, with the time each half took."""

    taken: list[Taken]
    verify_ms: float
    commit_ms: float


@dataclass(frozen=True, slots=True)
class Intake:
    sequencer: SequencerClient
    profiles: Mapping[bytes, Profile]
    limits: Limits

    def take(self, messages: Sequence[bytes]) -> Taking:
        """Each message stands by itself; those that pass are committed together, in order."""
        start = time.perf_counter()
        checked = [self._check(raw) for raw in messages]
        middle = time.perf_counter()
        outcomes = iter(self._commit([one for one in checked if isinstance(one, Verified)]))
        end = time.perf_counter()
        taken = [
            Taken(len(raw), one, next(outcomes))
            if isinstance(one, Verified)
            else Taken(len(raw), None, one)
            for raw, one in zip(messages, checked, strict=True)
        ]
        return Taking(taken, 1_000 * (middle - start), 1_000 * (end - middle))

    def _check(self, raw: bytes) -> Verified | Rejected:
        try:
            return signed(structural(prefilter(raw, self.limits), self.profiles, self.limits))
        except Rejected as refusal:
            return refusal

    def _commit(self, verified: list[Verified]) -> list[Outcome]:
        """Without the sequencer no message is kept, and each of them is told so."""
        try:
            return self.sequencer.commit(verified)
        except Unavailable as error:
            return [error for _ in verified]
