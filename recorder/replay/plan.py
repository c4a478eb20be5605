"""The plan of a replay: which stretch of each stream it takes, found by index and then verified."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from recorder.replay.source import Source
from recorder.replay.stretch import Neighbour, Stretch, at
from recorder.replay.wanted import OutOfReach, Wanted
from veen.client.trust import newest
from veen.digest import h
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.schema import Bytes64, Version
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(WireMap):
    """Stands at the head of every output, so that whoever has it knows what it must hold."""

    ver: Version = 1
    wanted: Wanted
    checkpoint: RecorderCheckpoint
    hub: HubIdentity
    hub_sig: Bytes64
    stretches: tuple[Stretch, ...]

    @property
    def count(self) -> int:
        return sum(one.count for one in self.stretches)

    @property
    def checkpoint_id(self) -> bytes:
        return _checkpoint_id(self.checkpoint.encode())

    def verify(self, hub_id: bytes, known: HubIdentity | None = None) -> HubIdentity:
        """Refuse unless this hub has signed the checkpoint, and nothing wanted is left out.

        ``known`` is the newest identity known elsewhere. The newest of both, by which signatures
        are to be verified, is given back.
        """
        if self.hub.hub_id != hub_id:
            raise Untrusted(f"a replay of hub {self.hub.hub_id.hex()}, not of {hub_id.hex()}")
        self.hub.verify(self.hub_sig)
        hub = self.hub if known is None else newest(known, self.hub)
        self.checkpoint.verify(hub)
        if tuple(one.stream for one in self.stretches) != self.wanted.streams:
            raise Untrusted("the streams of the replay are not those that were wanted")
        for one in self.stretches:
            one.verify(self.wanted, hub, self.checkpoint)
        return hub


def plan(source: Source, wanted: Wanted, checkpoint: RecorderCheckpoint) -> Plan:
    """Ask the index where each stretch begins and ends; nothing that it says is believed."""
    checkpoint.verify(source.hub)
    found = Plan(
        wanted=wanted,
        checkpoint=checkpoint,
        hub=source.hub,
        hub_sig=source.identity_sig(),
        stretches=tuple(_stretch(source, wanted, checkpoint, one) for one in wanted.streams),
    )
    found.verify(source.hub.hub_id)
    return found


@lru_cache(maxsize=8)
def _checkpoint_id(raw: bytes) -> bytes:
    """Every item names it, and it is a hash over all streams."""
    return h(raw)


def _stretch(
    source: Source, wanted: Wanted, checkpoint: RecorderCheckpoint, stream: str
) -> Stretch:
    end = checkpoint.end(stream)
    if end is None and not wanted.unproven:
        raise OutOfReach(
            f"{stream}: the checkpoint does not speak of it; take one made after its first event"
        )
    if end is not None and stream not in checkpoint.names:
        raise OutOfReach(f"{stream}: a stream is replayed by its name, not by its id")
    proven = end.last_seq if end else 0
    limit = max(proven, source.head_seq(stream)) if wanted.unproven else proven
    whole = Stretch(stream=stream, from_seq=1, to_seq=limit, proven_to=proven, limit=limit)
    return _of_places(whole, wanted) if wanted.by_place else _of_time(source, whole, wanted)


def _of_places(whole: Stretch, wanted: Wanted) -> Stretch:
    first, last = wanted.from_seq or 1, whole.limit if wanted.to_seq is None else wanted.to_seq
    if last > whole.limit or first > whole.limit + 1:
        raise OutOfReach(
            f"{at(whole.stream, max(first, last))}: what is proven ends at {whole.proven_to} and "
            f"what could be read at {whole.limit}; make a newer checkpoint, or allow what is "
            "unproven"
        )
    return replace(whole, from_seq=first, to_seq=last)


def _of_time(source: Source, whole: Stretch, wanted: Wanted) -> Stretch:
    first, beyond = 1, whole.limit + 1
    if wanted.start is not None:
        first = _place(source, whole, wanted.start)
    if wanted.end is not None:
        beyond = max(first, _place(source, whole, wanted.end + 1))
    return replace(
        whole,
        from_seq=first,
        to_seq=beyond - 1,
        before=_neighbour(source, whole, first - 1),
        after=_neighbour(source, whole, beyond),
    )


def _place(source: Source, whole: Stretch, hub_ts: int) -> int:
    found = source.first_at(whole.stream, hub_ts) if whole.limit else None
    return whole.limit + 1 if found is None else max(1, min(found, whole.limit + 1))


def _neighbour(source: Source, whole: Stretch, seq: int) -> Neighbour | None:
    if not 1 <= seq <= whole.limit:
        return None
    try:
        pairs = [pair for page in source.pages(whole.stream, seq, seq) for pair in page]
        proof = None
        if seq <= whole.proven_to:
            proof = source.range_proof(whole.stream, seq, seq, whole.proven_to)
    except VeenError as error:
        error.add_note(f"at {at(whole.stream, seq)}, the edge of the window")
        raise
    if len(pairs) != 1:
        raise Untrusted(f"{at(whole.stream, seq)}: the hub does not show it")
    return Neighbour(msg=pairs[0].msg, receipt=pairs[0].receipt, proof=proof)
