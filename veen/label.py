"""Labels: what a hub orders by, derived from hub, stream and epoch (spec 2, 12)."""

from __future__ import annotations

from dataclasses import dataclass

from veen.digest import ht, u64be
from veen.profile import Profile


def hub_id(first_hub_pk: bytes) -> bytes:
    """A hub's name for ever, whatever keys it signs with later."""
    return ht("veen/hub-id", first_hub_pk)


def routing_key(hub: bytes) -> bytes:
    return ht("veen/routing_key", hub)


def label(routing: bytes, stream: bytes, epoch: int) -> bytes:
    return ht("veen/label", routing, stream, u64be(epoch))


@dataclass(frozen=True, slots=True)
class EpochLabels:
    """The labels of one stream on one hub, epoch by epoch."""

    routing_key: bytes
    stream_id: bytes
    profile: Profile

    def at(self, epoch: int) -> bytes:
        return label(self.routing_key, self.stream_id, epoch)

    def accepted(self, hub_ts: int, max_epoch_skew_sec: int) -> dict[bytes, int]:
        """Every label a hub may admit at ``hub_ts``, with its epoch (spec 12)."""
        return {self.at(epoch): epoch for epoch in self.profile.epochs(hub_ts, max_epoch_skew_sec)}
