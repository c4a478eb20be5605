"""What is to be replayed: places of one stream, or a window of hub time over many (SDR0 3.2.5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from veen.errors import Malformed, VeenError
from veen.wire import WireMap

_SECOND_MS = 1000


class OutOfReach(VeenError):
    """Places that the chosen checkpoint says nothing about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted(WireMap):
    """``start`` and ``end`` are seconds of hub time, ``from_seq`` and ``to_seq`` places; both ends
    belong to it. ``unproven`` lets it go on above the checkpoint, ``opened`` has bodies opened.
    """

    streams: tuple[str, ...]
    from_seq: int | None = None
    to_seq: int | None = None
    start: int | None = None
    end: int | None = None
    unproven: bool
    opened: bool
    with_proofs: bool

    def rule(self) -> None:
        if not self.streams or list(self.streams) != sorted(set(self.streams)):
            raise Malformed("a replay of no stream, or of streams out of order or doubled")
        if self.by_place and self.by_time:
            raise Malformed("a replay goes by places or by time, not by both")
        if self.by_place and len(self.streams) > 1:
            raise Malformed("places count within one stream: name one, or a time")
        if self.from_seq == 0 or self.to_seq == 0:
            raise Malformed("places count from 1")
        _refuse_backwards("place", self.from_seq, self.to_seq)
        # A window within one second holds none: it ends just before it begins.
        _refuse_backwards("time", self.start, None if self.end is None else self.end + 1)

    @property
    def by_place(self) -> bool:
        return self.from_seq is not None or self.to_seq is not None

    @property
    def by_time(self) -> bool:
        return self.start is not None or self.end is not None

    def holds(self, hub_ts: int) -> bool:
        """Whether something of that time belongs to it."""
        if self.start is not None and hub_ts < self.start:
            return False
        return self.end is None or hub_ts <= self.end


def by_place(
    stream: str,
    from_seq: int | None,
    to_seq: int | None,
    *,
    unproven: bool = False,
    opened: bool = True,
    with_proofs: bool = False,
) -> Wanted:
    """A stretch of one stream."""
    return _checked(
        Wanted(
            streams=(stream,),
            from_seq=from_seq or 1,
            to_seq=to_seq,
            unproven=unproven,
            opened=opened,
            with_proofs=with_proofs,
        )
    )


def by_time(
    streams: Iterable[str],
    start_ms: int | None,
    end_ms: int | None,
    *,
    unproven: bool = False,
    opened: bool = True,
    with_proofs: bool = False,
) -> Wanted:
    """A window over streams; hub time has whole seconds, and only those within belong to it."""
    _refuse_backwards("time", start_ms, end_ms)
    return _checked(
        Wanted(
            streams=tuple(sorted(set(streams))),
            start=None if start_ms is None else -(-start_ms // _SECOND_MS),
            end=None if end_ms is None else end_ms // _SECOND_MS,
            unproven=unproven,
            opened=opened,
            with_proofs=with_proofs,
        )
    )


def _checked(wanted: Wanted) -> Wanted:
    return Wanted.decode(wanted.encode())


def _refuse_backwards(what: str, first: int | None, last: int | None) -> None:
    if first is not None and last is not None and last < first:
        raise Malformed(f"the {what} {last} to end at is before {first}, where it begins")
