"""The registry of streams: which stream and epoch a label belongs to (spec 6, 12)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from veen.label import EpochLabels
from veen.log.entry import StreamRecord

# Labels this far outside the skew window are still recognised as labels of their stream.
_RECOGNISED_SEC: Final = 86_400
_MAX_RECOGNISED_EPOCHS: Final = 256
# The labels of a stream are derived this many epochs before they are needed.
_AHEAD_EPOCHS: Final = 16
_MOVED_PER_ROUTE: Final = 2
_PRODUCT_STREAMS: Final = ("record/", "export/", "import/", "bridge/")


class Routed(NamedTuple):
    """The stream and epoch of a label at a hub time."""

    stream: StreamRecord
    stream_id: bytes
    profile_id: bytes
    epoch: int
    in_window: bool


class Registry:
    def __init__(self, routing_key: bytes, max_epoch_skew_sec: int) -> None:
        self._routing_key = routing_key
        self._skew = max_epoch_skew_sec
        self._streams: dict[bytes, StreamRecord] = {}
        self._fixed: dict[bytes, Routed] = {}
        self._rolling = EpochWindows(routing_key, max_epoch_skew_sec)

    def is_new(self, stream: StreamRecord) -> bool:
        """Whether the stream is unknown, or known by its identifier alone and named by this."""
        known = self._streams.get(stream.stream_id())
        return known is None or known.is_nameless()

    def add(self, stream: StreamRecord) -> bool:
        """Add a stream; whether the registry changed."""
        if not self.is_new(stream):
            return False
        self._streams[stream.stream_id()] = stream
        if stream.profile.epoch_sec:
            self._rolling.add(stream)
        else:
            self._fixed[self._labels(stream).at(0)] = _routed(stream, 0, in_window=True)
        return True

    def streams(self) -> Iterable[StreamRecord]:
        return self._streams.values()

    def stream(self, stream_id: bytes) -> StreamRecord | None:
        return self._streams.get(stream_id)

    def labels_of(self, stream: StreamRecord) -> EpochLabels:
        return self._labels(stream)

    def route(self, label: bytes, hub_ts: int) -> Routed | None:
        """The stream and epoch of a label, or None when it is of no known stream."""
        fixed = self._fixed.get(label)
        return self._rolling.route(label, hub_ts) if fixed is None else fixed

    def advance(self, hub_ts: int, most: int) -> None:
        """Derive labels of epochs to come, for at most so many streams."""
        self._rolling.advance(hub_ts, most)

    def _labels(self, stream: StreamRecord) -> EpochLabels:
        return EpochLabels(self._routing_key, stream.stream_id(), stream.profile)


class EpochWindows:
    """The labels of streams with epochs around a hub time, by label.

    A label is found by its key. Each stream has its labels for some epochs to come, and gets more
    a few streams at a time, long before it needs them; a label that is not found makes good what
    is still due. Hub time that goes back, as in a rebuild, starts over.
    """

    def __init__(self, routing_key: bytes, skew_sec: int) -> None:
        self._routing_key = routing_key
        self._skew = skew_sec
        self._streams: dict[bytes, StreamRecord] = {}
        self._places: dict[bytes, tuple[bytes, int]] = {}
        self._spans: dict[bytes, range] = {}
        self._due: list[tuple[int, bytes]] = []
        """The streams by the hub time from which they are to get more labels."""
        self._since = 0

    def add(self, stream: StreamRecord) -> None:
        """Add a stream, or replace the record that it had."""
        stream_id = stream.stream_id()
        known = self._streams.get(stream_id)
        self._streams[stream_id] = stream
        if known is None:
            heapq.heappush(self._due, (0, stream_id))
        elif known.profile != stream.profile:
            self._start_over()

    def route(self, label: bytes, hub_ts: int) -> Routed | None:
        if hub_ts < self._since:
            self._start_over()
        self.advance(hub_ts, _MOVED_PER_ROUTE)
        if label not in self._places:
            self.advance(hub_ts, len(self._streams))
        place = self._places.get(label)
        if place is None:
            return None
        stream_id, epoch = place
        stream = self._streams[stream_id]
        if epoch not in stream.profile.epochs(hub_ts, self._reach(stream)):
            return None
        in_window = epoch in stream.profile.epochs(hub_ts, self._skew)
        return _routed(stream, epoch, in_window=in_window)

    def advance(self, hub_ts: int, most: int) -> None:
        """Move the windows of at most so many streams that are due."""
        while most and self._due and self._due[0][0] <= hub_ts:
            _, stream_id = self._due[0]
            heapq.heapreplace(self._due, (self._move(stream_id, hub_ts), stream_id))
            most -= 1

    def _move(self, stream_id: bytes, hub_ts: int) -> int:
        """Move the window of a stream to a hub time; when it is due again."""
        stream = self._streams[stream_id]
        labels, profile = EpochLabels(self._routing_key, stream_id, stream.profile), stream.profile
        old, near = (
            self._spans.get(stream_id, range(0)),
            profile.epochs(hub_ts, self._reach(stream)),
        )
        new = range(near.start, near.stop + _AHEAD_EPOCHS)
        for epoch in old:
            if epoch not in new:
                del self._places[labels.at(epoch)]
        for epoch in new:
            if epoch not in old:
                self._places[labels.at(epoch)] = (stream_id, epoch)
        self._spans[stream_id] = new
        self._since = max(self._since, profile.epoch(hub_ts) * profile.epoch_sec)
        # Not all streams at once: after between a half and nearly all of the epochs ahead.
        ahead = (_AHEAD_EPOCHS - 1) * profile.epoch_sec
        spread = int.from_bytes(stream_id[:4], "big") * (ahead // 2) >> 32
        return profile.epoch(hub_ts) * profile.epoch_sec + ahead - spread

    def _reach(self, stream: StreamRecord) -> int:
        recognised = min(_RECOGNISED_SEC, _MAX_RECOGNISED_EPOCHS * stream.profile.epoch_sec)
        return recognised + self._skew

    def _start_over(self) -> None:
        self._places.clear()
        self._spans.clear()
        self._due = [(0, stream_id) for stream_id in self._streams]
        heapq.heapify(self._due)
        self._since = 0


def is_recorded(stream: StreamRecord) -> bool:
    """Whether recorder checkpoints cover a stream: those of the recorder and the bridge, each of
    which has a single label.
    """
    return stream.name.startswith(_PRODUCT_STREAMS) and not stream.profile.epoch_sec


def _routed(stream: StreamRecord, epoch: int, *, in_window: bool) -> Routed:
    return Routed(stream, stream.stream_id(), stream.profile.profile_id(), epoch, in_window)
