"""The inline engine: a query answered from the index, up to a recorder checkpoint (Query API 6, 8).

What a query means is decided by ``recorder.query``; here it is only brought what it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from recorder.index.home import IndexHome
from recorder.index.plan import TooLarge, plan
from recorder.index.snapshot import snapshot
from recorder.index.walk import walk
from recorder.index.witnesses import Terms, verified_witnesses
from recorder.query.descriptor import Descriptor
from recorder.query.digest import Searched
from recorder.query.entry import Entry
from recorder.query.evidence import Witness, is_sampled
from recorder.query.run import Outcome, Sampled, rows_of
from recorder.query.select import matches
from veen.crew import HERE, Crew
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """How many rows of the index a query may look at, and how many it may hold in memory."""

    row_budget: int = 100_000
    max_rows: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``witnesses`` are those of ``outcome.sampled``, in its order; all of them were verified."""

    outcome: Outcome
    searched: tuple[Searched, ...]
    witnesses: tuple[Witness, ...]


def answer(
    home: IndexHome,
    descriptor: Descriptor,
    checkpoint: RecorderCheckpoint,
    hub: HubIdentity,
    limits: EngineLimits,
    beside: Crew = HERE,
) -> Answer:
    """The answer to a query as of the checkpoint, whole, or an error and nothing of it.

    Witnesses are verified by the crew ``beside``.
    ``checkpoint`` has been verified to be of ``hub``. Raises NotReached, TooLarge, IndexAlarm, and
    Untrusted where a sampled event is not what was recorded.
    """
    with snapshot(home) as held:
        held.refuse_alarms()
        found = plan(held, descriptor, checkpoint, limits.row_budget)
        picked = _Picked(descriptor, checkpoint.log_root, limits.max_rows)
        rows = rows_of(descriptor, picked.through(walk(held, found, descriptor.filter)))
        witnesses = verified_witnesses(
            held,
            {one.row.name: one.row for one in found.ranges},
            picked.sampled,
            Terms(hub, checkpoint),
            beside,
        )
    unread = {one.stream: one.unread for one in found.searched}
    outcome = Outcome(rows, picked.count, tuple(picked.sampled), unread)
    return Answer(outcome=outcome, searched=found.searched, witnesses=witnesses)


class _Picked:
    """Lets the events that match pass, counts them and keeps those that are sampled."""

    def __init__(self, descriptor: Descriptor, log_root: bytes, max_rows: int) -> None:
        self.count = 0
        self.sampled: list[Sampled] = []
        self._descriptor = descriptor
        self._log_root = log_root
        self._max_rows = max_rows

    def through(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        wanted, policy = self._descriptor, self._descriptor.evidence
        for entry in entries:
            if not matches(wanted, entry):
                continue
            if is_sampled(policy, wanted.query_id, self._log_root, self.count):
                self.sampled.append(Sampled(self.count, entry))
            self.count += 1
            self._refuse_many()
            yield entry

    def _refuse_many(self) -> None:
        """Of an aggregate, only what is verified is held."""
        held = self.count if self._descriptor.aggregate is None else len(self.sampled)
        if held > self._max_rows:
            raise TooLarge(
                f"the result holds more than {self._max_rows} events; narrow it, or let the spark "
                "engine run it"
            )
