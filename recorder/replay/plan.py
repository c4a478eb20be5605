"""Planning a replay: its request, its source, and the verified range of each stream (SDR0 3.2.5).

A request names positions of one stream, or a window of hub time over many. The bounds of each range
are located by the hub's index and then verified, with evidence that the range is complete. The
source is a port; the hub behind a client is one implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from veen.client import reader
from veen.client.client import Client
from veen.client.log_head import LabelLogRef, Pair, is_missing, read_log_head
from veen.client.transport import HubRefused
from veen.client.verified_read import PAGE_ITEMS, LabelRange, replay
from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity, newest_identity
from veen.invariants import Rules, verify_signatures
from veen.label import DEFAULT_PROFILE, EpochLabels, routing_key, stream_id
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import Opened
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint
from veen.wire.api import LocateRequest
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes64, Version

_SECOND_MS = 1000


class ReplaySource(Protocol):
    """A log to replay; what it states of positions and proofs is verified by the caller."""

    @property
    def hub(self) -> HubIdentity:
        """The pinned identity of the hub whose log this is."""

    def identity_sig(self) -> bytes:
        """The hub's signature over that identity."""

    def pages(self, stream: str, from_seq: int, to_seq: int) -> Iterator[tuple[Pair, ...]]:
        """Yield pairs with verified signatures and order, in pages that fit into memory."""

    def range_proof(self, stream: str, from_seq: int, to_seq: int, size: int) -> RangeProof:
        """A proof of these positions at that tree size, or HubRefused."""

    def first_at(self, stream: str, hub_ts: int) -> int | None:
        """The first position not before a time, by the hub's index; None if there is none."""

    def head_seq(self, stream: str) -> int:
        """The current last position of the stream."""

    def open_pair(self, pair: Pair) -> Opened:
        """Decrypt the payload of a message, or raise Unopenable."""


class HubSource:
    """A running hub, read and verified through a client."""

    def __init__(self, client: Client, page_items: int = PAGE_ITEMS) -> None:
        self._session = client.meet()
        self._page_items = page_items

    @property
    def hub(self) -> HubIdentity:
        return self._session.hub

    def identity_sig(self) -> bytes:
        status = self._session.api.status()
        if status.identity() != self.hub:
            raise Untrusted("the hub identity changed during the replay; run it again")
        return status.identity_sig

    def pages(self, stream: str, from_seq: int, to_seq: int) -> Iterator[tuple[Pair, ...]]:
        pages = LabelRange(from_seq=from_seq, to_seq=to_seq, page_items=self._page_items)
        return replay(self._session, self._log(stream), pages)

    def range_proof(self, stream: str, from_seq: int, to_seq: int, size: int) -> RangeProof:
        return self._session.api.range_proof(self._log(stream).label, from_seq, to_seq, size)

    def first_at(self, stream: str, hub_ts: int) -> int | None:
        label = self._log(stream).label
        try:
            places = self._session.api.locate(LocateRequest(label=label, hub_ts=hub_ts))
        except HubRefused as error:
            if not is_missing(error):
                raise
            return None
        return places[0].stream_seq if places else None

    def head_seq(self, stream: str) -> int:
        head = read_log_head(self._session, self._log(stream), 0)
        return head.stream_seq if head else 0

    def open_pair(self, pair: Pair) -> Opened:
        return reader.open_pair(self._session, pair, DEFAULT_PROFILE)

    def _log(self, stream: str) -> LabelLogRef:
        return LabelLogRef(self._session.labels(stream, DEFAULT_PROFILE), stream, 0)


class OutOfReach(VeenError):
    """Positions that the chosen checkpoint does not cover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest(WireMap):
    """What to replay.

    ``start`` and ``end`` are seconds of hub time, ``from_seq`` and ``to_seq`` positions, all
    inclusive. ``unproven`` continues above the checkpoint, ``opened`` decrypts bodies.
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
            raise Malformed("streams: expected one or more, sorted and unique")
        if self.by_place and self.by_time:
            raise Malformed("expected a range of sequence numbers or of time, got both")
        if self.by_place and len(self.streams) > 1:
            raise Malformed(
                "sequence numbers are of one stream; name one stream, or a range of time"
            )
        if self.from_seq == 0 or self.to_seq == 0:
            raise Malformed("sequence numbers start at 1, got 0")
        _verify_order("sequence number", self.from_seq, self.to_seq)
        # A window within a second is empty: its end is one less than its start.
        _verify_order("time", self.start, None if self.end is None else self.end + 1)

    @property
    def by_place(self) -> bool:
        return self.from_seq is not None or self.to_seq is not None

    @property
    def by_time(self) -> bool:
        return self.start is not None or self.end is not None

    def holds(self, hub_ts: int) -> bool:
        """Whether a message of that time is part of the replay."""
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
) -> ReplayRequest:
    """A request for a range of one stream."""
    return _validated(
        ReplayRequest(
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
) -> ReplayRequest:
    """A request for a time window over streams.

    Hub time has whole seconds, and those within the window count.
    """
    _verify_order("time", start_ms, end_ms)
    return _validated(
        ReplayRequest(
            streams=tuple(sorted(set(streams))),
            start=None if start_ms is None else -(-start_ms // _SECOND_MS),
            end=None if end_ms is None else end_ms // _SECOND_MS,
            unproven=unproven,
            opened=opened,
            with_proofs=with_proofs,
        )
    )


def _validated(request: ReplayRequest) -> ReplayRequest:
    return ReplayRequest.decode(request.encode())


def _verify_order(what: str, first: int | None, last: int | None) -> None:
    if first is not None and last is not None and last < first:
        raise Malformed(f"the last {what} {last} is before the first, {first}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour(WireMap):
    """The message just outside a range; above the checkpoint it has no proof."""

    msg: Msg
    receipt: Receipt
    proof: RangeProof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRange(WireMap):
    """The positions from ``from_seq`` to ``to_seq``, empty when ``to_seq`` is one less.

    The checkpoint proves positions up to ``proven_to``; ``limit`` is the last that could be
    included.
    """

    stream: str
    from_seq: int
    to_seq: int
    proven_to: int
    limit: int
    before: Neighbour | None = None
    after: Neighbour | None = None

    @property
    def count(self) -> int:
        return self.to_seq - self.from_seq + 1

    def verify(
        self, request: ReplayRequest, hub: HubIdentity, checkpoint: RecorderCheckpoint
    ) -> None:
        """Verify that it has every requested position, and no other."""
        end = checkpoint.end(self.stream)
        if self.proven_to != (end.last_seq if end else 0) or self.limit < self.proven_to:
            raise self._untrusted(
                self.proven_to, f"the checkpoint ends at {end.last_seq if end else 0}"
            )
        if self.limit > self.proven_to and not request.unproven:
            raise self._untrusted(self.limit, "it is above the checkpoint")
        if not 0 < self.from_seq <= self.to_seq + 1 <= self.limit + 1:
            raise self._untrusted(
                self.from_seq, f"expected a range within {self.limit}, got an end at {self.to_seq}"
            )
        if request.by_place:
            self._verify_places(request)
        else:
            self._verify_before(request, hub, checkpoint)
            self._verify_after(request, hub, checkpoint)

    def _verify_places(self, request: ReplayRequest) -> None:
        expected = (request.from_seq or 1, self.limit if request.to_seq is None else request.to_seq)
        if (self.from_seq, self.to_seq) != expected:
            raise self._untrusted(
                self.from_seq,
                f"expected the range {expected[0]} to {expected[1]}, got {self.from_seq} to "
                f"{self.to_seq}",
            )

    def _verify_before(
        self, request: ReplayRequest, hub: HubIdentity, checkpoint: RecorderCheckpoint
    ) -> None:
        seq = self.from_seq - 1
        if seq == 0:
            return
        if request.start is None:
            raise self._untrusted(seq, "it was left out")
        hub_ts = self._verified(seq, self.before, hub, checkpoint)
        if hub_ts >= request.start:
            raise self._untrusted(
                seq, f"its hub time {hub_ts} is within the window, and it was left out"
            )

    def _verify_after(
        self, request: ReplayRequest, hub: HubIdentity, checkpoint: RecorderCheckpoint
    ) -> None:
        seq = self.to_seq + 1
        if seq > self.limit:
            return
        if request.end is None:
            raise self._untrusted(seq, "it was left out")
        hub_ts = self._verified(seq, self.after, hub, checkpoint)
        if hub_ts <= request.end:
            raise self._untrusted(
                seq, f"its hub time {hub_ts} is within the window, and it was left out"
            )

    def _verified(
        self,
        seq: int,
        neighbour: Neighbour | None,
        hub: HubIdentity,
        checkpoint: RecorderCheckpoint,
    ) -> int:
        """Verify a neighbour and return its hub time."""
        if neighbour is None:
            raise self._untrusted(seq, "no proof that it is outside the window")
        rules = rules_of(hub, self.stream)
        receipt, leaf = neighbour.receipt, neighbour.msg.leaf_hash()
        label = labels_of(hub, self.stream).at(0)
        if (receipt.label, receipt.stream_seq, receipt.leaf_hash) != (label, seq, leaf):
            raise self._untrusted(seq, "the receipt is of another message or sequence number")
        try:
            verify_signatures(neighbour.msg, receipt, rules)
            if seq <= self.proven_to:
                verify_proof(checkpoint, self.stream, (seq, seq), neighbour.proof, [leaf])
        except Untrusted as error:
            raise self._untrusted(seq, str(error)) from error
        return receipt.hub_ts

    def _untrusted(self, seq: int, why: str) -> Untrusted:
        return Untrusted(f"{at(self.stream, seq)}: {why}")


def verify_proof(
    checkpoint: RecorderCheckpoint,
    stream: str,
    places: tuple[int, int],
    proof: RangeProof | None,
    leaves: list[bytes],
) -> None:
    """Verify that the checkpoint has exactly these leaves at these positions."""
    end = checkpoint.end(stream)
    size, root = (end.last_seq, end.mmr_root) if end else (0, EMPTY_ROOT)
    if proof is None or (proof.from_seq, proof.to_seq) != places:
        raise Untrusted("its range proof at the checkpoint is missing")
    proof.verify(leaves=leaves, size=size, root=root)


def at(stream: str, seq: int) -> str:
    """A position, formatted for error messages."""
    return f"{stream}, stream_seq {seq}"


def labels_of(hub: HubIdentity, stream: str) -> EpochLabels:
    return EpochLabels(routing_key(hub.hub_id), stream_id(stream), DEFAULT_PROFILE)


def rules_of(hub: HubIdentity, stream: str) -> Rules:
    profiles = {DEFAULT_PROFILE.profile_id(): DEFAULT_PROFILE}
    return Rules(hub=hub, profiles=profiles, limits=Limits(), stream=labels_of(hub, stream))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan(WireMap):
    """The first record of every output, which says what the output must hold."""

    ver: Version = 1
    requested: ReplayRequest
    checkpoint: RecorderCheckpoint
    hub: HubIdentity
    hub_sig: Bytes64
    stream_ranges: tuple[StreamRange, ...]

    @property
    def count(self) -> int:
        return sum(stream_range.count for stream_range in self.stream_ranges)

    @property
    def checkpoint_id(self) -> bytes:
        return _checkpoint_id(self.checkpoint.encode())

    def verify(self, hub_id: bytes, known: HubIdentity | None = None) -> HubIdentity:
        """Verify that this hub has signed the checkpoint, and that nothing requested is left out.

        ``known`` is the newest identity known elsewhere. Returns the newest of both, with which
        signatures are to be verified.
        """
        if self.hub.hub_id != hub_id:
            raise Untrusted(f"expected a replay of hub {hub_id.hex()}, got {self.hub.hub_id.hex()}")
        self.hub.verify(self.hub_sig)
        hub = self.hub if known is None else newest_identity(known, self.hub)
        self.checkpoint.verify(hub)
        streams = tuple(stream_range.stream for stream_range in self.stream_ranges)
        if streams != self.requested.streams:
            raise Untrusted("the streams of the replay are not those of its request")
        for stream_range in self.stream_ranges:
            stream_range.verify(self.requested, hub, self.checkpoint)
        return hub


def plan(
    source: ReplaySource, request: ReplayRequest, checkpoint: RecorderCheckpoint
) -> ReplayPlan:
    """Locate the range of each stream by the hub's index, and verify it."""
    checkpoint.verify(source.hub)
    replay_plan = ReplayPlan(
        requested=request,
        checkpoint=checkpoint,
        hub=source.hub,
        hub_sig=source.identity_sig(),
        stream_ranges=tuple(
            _stream_range(source, request, checkpoint, stream) for stream in request.streams
        ),
    )
    replay_plan.verify(source.hub.hub_id)
    return replay_plan


@lru_cache(maxsize=8)
def _checkpoint_id(raw: bytes) -> bytes:
    """Cached, since every item names it and it is a hash over all streams."""
    return h(raw)


def _stream_range(
    source: ReplaySource, request: ReplayRequest, checkpoint: RecorderCheckpoint, stream: str
) -> StreamRange:
    end = checkpoint.end(stream)
    if end is None and not request.unproven:
        raise OutOfReach(
            f"{stream}: the checkpoint does not cover it; use one made after its first event"
        )
    if end is not None and stream not in checkpoint.names:
        raise OutOfReach(f"{stream}: expected the name of a stream, got its id")
    proven = end.last_seq if end else 0
    limit = max(proven, source.head_seq(stream)) if request.unproven else proven
    whole = StreamRange(stream=stream, from_seq=1, to_seq=limit, proven_to=proven, limit=limit)
    return _of_places(whole, request) if request.by_place else _of_time(source, whole, request)


def _of_places(whole: StreamRange, request: ReplayRequest) -> StreamRange:
    first, last = request.from_seq or 1, whole.limit if request.to_seq is None else request.to_seq
    if last > whole.limit or first > whole.limit + 1:
        raise OutOfReach(
            f"{at(whole.stream, max(first, last))}: the checkpoint ends at {whole.proven_to}, and "
            f"the log that may be read at {whole.limit}; create a newer checkpoint, or use "
            "--unproven"
        )
    return replace(whole, from_seq=first, to_seq=last)


def _of_time(source: ReplaySource, whole: StreamRange, request: ReplayRequest) -> StreamRange:
    first, beyond = 1, whole.limit + 1
    if request.start is not None:
        first = _place(source, whole, request.start)
    if request.end is not None:
        beyond = max(first, _place(source, whole, request.end + 1))
    return replace(
        whole,
        from_seq=first,
        to_seq=beyond - 1,
        before=_neighbour(source, whole, first - 1),
        after=_neighbour(source, whole, beyond),
    )


def _place(source: ReplaySource, whole: StreamRange, hub_ts: int) -> int:
    seq = source.first_at(whole.stream, hub_ts) if whole.limit else None
    return whole.limit + 1 if seq is None else max(1, min(seq, whole.limit + 1))


def _neighbour(source: ReplaySource, whole: StreamRange, seq: int) -> Neighbour | None:
    if not 1 <= seq <= whole.limit:
        return None
    try:
        pairs = [pair for page in source.pages(whole.stream, seq, seq) for pair in page]
        proof = None
        if seq <= whole.proven_to:
            proof = source.range_proof(whole.stream, seq, seq, whole.proven_to)
    except VeenError as error:
        error.add_note(f"at {at(whole.stream, seq)}, next to the window")
        raise
    if len(pairs) != 1:
        raise Untrusted(f"{at(whole.stream, seq)}: the hub did not return it")
    return Neighbour(msg=pairs[0].msg, receipt=pairs[0].receipt, proof=proof)
