"""Whether a hub still holds all of its recorder streams, which are kept long term (SDR0 3.2.2).

What is kept is the word of the hub's configuration, not of ours: it can only be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from recorder.stream_map import NAMESPACE
from veen.client.head import first_readable, is_readable
from veen.client.pair import Log
from veen.client.session import Session
from veen.profile import DEFAULT_PROFILE


class Pruned(NamedTuple):
    """A stream of which the hub has taken away what is before ``first_seq``."""

    stream: str
    first_seq: int

    def told(self) -> str:
        return (
            f"{self.stream} is kept long term, and the hub has taken away its events up to "
            f"{self.first_seq - 1}: see [[retention]] of the hub; an archive may still have them"
        )


def pruned(session: Session, heads: Mapping[str, int]) -> Iterator[Pruned]:
    """By one question for each stream; ``heads`` is the last stream_seq of each."""
    for name, head in heads.items():
        if not head or not name.startswith(NAMESPACE):
            continue
        log = Log(session.labels(name, DEFAULT_PROFILE), name, 0)
        if not is_readable(session, log, 1):
            yield Pruned(name, first_readable(session, log, 1, head))
