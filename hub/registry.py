"""The registry of streams: which stream and epoch a label belongs to (spec 6, 12)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from veen.label import EpochLabels
from veen.log.entry import StreamRecord

# Labels this far outside the skew window are still recognised as labels of their stream.
_RECOGNISED_SEC: Final = 86_400
_MAX_RECOGNISED_EPOCHS: Final = 256
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
        self._rolling: list[StreamRecord] = []
        self._windows: dict[tuple[bytes, int], dict[bytes, Routed]] = {}

    def is_new(self, stream: StreamRecord) -> bool:
        """Whether the stream is unknown, or known by its identifier alone and named by this."""
        known = self._streams.get(stream.stream_id())
        return known is None or known.is_nameless()

    def add(self, stream: StreamRecord) -> bool:
        """Add a stream; whether the registry changed."""
        if not self.is_new(stream):
            return False
        known = self._streams.get(stream.stream_id())
        self._streams[stream.stream_id()] = stream
        if known is not None and known.profile == stream.profile:
            self._rename(known, stream)
            return True
        if stream.profile.epoch_sec:
            self._rolling.append(stream)
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
        if fixed is not None or not self._rolling:
            return fixed
        for stream in self._rolling:
            routed = self._window(stream, hub_ts).get(label)
            if routed is not None:
                return routed
        return None

    def _rename(self, known: StreamRecord, stream: StreamRecord) -> None:
        label = self._labels(stream).at(0)
        if label in self._fixed:
            self._fixed[label] = self._fixed[label]._replace(stream=stream)
        self._rolling = [stream if record == known else record for record in self._rolling]
        self._windows.clear()

    def _window(self, stream: StreamRecord, hub_ts: int) -> dict[bytes, Routed]:
        key = (stream.stream_id(), stream.profile.epoch(hub_ts))
        if key not in self._windows:
            stale = [known for known in self._windows if known[0] == key[0]]
            for known in stale:
                del self._windows[known]
            self._windows[key] = self._recognised(stream, hub_ts)
        return self._windows[key]

    def _recognised(self, stream: StreamRecord, hub_ts: int) -> dict[bytes, Routed]:
        labels, profile = self._labels(stream), stream.profile
        accepted = profile.epochs(hub_ts, self._skew)
        reach = min(_RECOGNISED_SEC, _MAX_RECOGNISED_EPOCHS * profile.epoch_sec) + self._skew
        return {
            labels.at(epoch): _routed(stream, epoch, in_window=epoch in accepted)
            for epoch in profile.epochs(hub_ts, reach)
        }

    def _labels(self, stream: StreamRecord) -> EpochLabels:
        return EpochLabels(self._routing_key, stream.stream_id(), stream.profile)


def is_recorded(stream: StreamRecord) -> bool:
    """Whether recorder checkpoints cover a stream: those of the recorder and the bridge, each of
    which has a single label.
    """
    return stream.name.startswith(_PRODUCT_STREAMS) and not stream.profile.epoch_sec


def _routed(stream: StreamRecord, epoch: int, *, in_window: bool) -> Routed:
    return Routed(stream, stream.stream_id(), stream.profile.profile_id(), epoch, in_window)
