"""What an audit of any chunk goes by: the hub, its limits, and what its control log made known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from veen.captoken import CapToken
from veen.control import ControlRecord, StreamRecord
from veen.hub_identity import HubIdentity
from veen.label import EpochLabels, routing_key
from veen.limits import Limits
from veen.profile import DEFAULT_PROFILE, Profile

# How far from its first entry the epoch of a label is looked for, beyond the skew window.
_RECOGNISED_SEC: Final = 86_400
_MAX_RECOGNISED_EPOCHS: Final = 256


class Depth(Enum):
    """How much of each entry is checked."""

    FULL = "full"
    HASHES = "hashes"
    """All but the two signatures of each entry; whatever else is signed is still verified."""


class Told(NamedTuple):
    """One record of the control log."""

    record: ControlRecord
    stream_seq: int
    hub_ts: int


class Capability(NamedTuple):
    token: CapToken
    issued_at: int


class Known(NamedTuple):
    """The labels of a stream, and since when the hub has known it."""

    labels: EpochLabels
    since: int


class Origin(NamedTuple):
    """The stream and epoch that a label is of."""

    labels: EpochLabels
    epoch: int
    since: int
    from_first: bool
    """Whether the stream was known when the label began."""


@dataclass(frozen=True, slots=True)
class Streams:
    fixed: Mapping[bytes, Known]
    """Streams without epochs, by the one label of each."""
    rolling: tuple[Known, ...]

    def origin(self, label: bytes, first_ts: int, skew_sec: int) -> Origin | None:
        """Where a label comes from whose first entry has this hub_ts."""
        known = self.fixed.get(label)
        if known is not None:
            return Origin(known.labels, 0, known.since, known.since <= first_ts)
        for one in self.rolling:
            profile = one.labels.profile
            reach = min(_RECOGNISED_SEC, _MAX_RECOGNISED_EPOCHS * profile.epoch_sec) + skew_sec
            for epoch in profile.epochs(first_ts, reach):
                if one.labels.at(epoch) == label:
                    return Origin(one.labels, epoch, one.since, one.since <= first_ts)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    hub: HubIdentity
    limits: Limits
    profiles: Mapping[bytes, Profile]
    configured: tuple[StreamRecord, ...]
    depth: Depth
    streams: Streams
    capabilities: Mapping[bytes, Capability]
    rated: frozenset[bytes]
    """The capabilities that have a rate."""
    control_is_whole: bool
    """Whether every capability that was ever made known could be read."""

    def told(self, records: Iterable[Told], *, is_whole: bool) -> Context:
        """The context of all other labels, once the control label has been audited."""
        capabilities: dict[bytes, Capability] = {}
        learnt = [(one, 0) for one in self.configured]
        for told in records:
            token = told.record.token()
            if token is not None:
                capabilities.setdefault(token.auth_ref(), Capability(token, told.hub_ts))
            learnt += [(one, told.hub_ts) for one in told.record.streams()]
        rated = (ref for ref, one in capabilities.items() if one.token.allow.rate is not None)
        return replace(
            self,
            streams=_streams(routing_key(self.hub.hub_id), learnt),
            capabilities=capabilities,
            rated=frozenset(rated),
            control_is_whole=is_whole,
        )

    def origin(self, label: bytes, first_ts: int) -> Origin | None:
        return self.streams.origin(label, first_ts, self.limits.max_epoch_skew_sec)


def begin(
    *,
    hub: HubIdentity,
    limits: Limits,
    profiles: Iterable[Profile],
    streams: Iterable[StreamRecord],
    depth: Depth,
) -> Context:
    """The context of the control label, which needs none but the hub itself."""
    bare = Context(
        hub=hub,
        limits=limits,
        profiles={one.profile_id(): one for one in (DEFAULT_PROFILE, *profiles)},
        configured=tuple(streams),
        depth=depth,
        streams=Streams({}, ()),
        capabilities={},
        rated=frozenset(),
        control_is_whole=True,
    )
    return bare.told((), is_whole=True)


def _streams(routing: bytes, learnt: Iterable[tuple[StreamRecord, int]]) -> Streams:
    """A stream is known from its first record; a name may come later, and its profile with it."""
    known: dict[bytes, StreamRecord] = {}
    since: dict[bytes, int] = {}
    fixed: dict[bytes, Known] = {}
    rolling: list[Known] = []
    for stream, hub_ts in learnt:
        name, before = stream.stream_id(), known.get(stream.stream_id())
        if before is not None and not before.is_nameless():
            continue
        known[name] = stream
        found = Known(
            EpochLabels(routing, name, stream.profile), since.setdefault(name, hub_ts)
        )  # fmt: skip
        if before is not None and before.profile == stream.profile:
            continue
        if stream.profile.epoch_sec:
            rolling.append(found)
        else:
            fixed[found.labels.at(0)] = found
    return Streams(fixed, tuple(rolling))
