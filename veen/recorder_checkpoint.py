"""The recorder checkpoint: one hub-signed document over the ends of many streams (SDR0 3.2.4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey, signature_is_valid
from veen.digest import h, ht
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE, EpochLabels, derive_label, routing_key, stream_id
from veen.wire import cbor
from veen.wire.objects import WireArray, WireMap
from veen.wire.schema import Bytes32, Bytes64, Version

EMPTY_ROOT: Final = bytes(32)
"""The root of a stream without messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd(WireArray):
    """How far a stream went: its last sequence number and the root there."""

    stream_id: Bytes32
    last_seq: int
    mmr_root: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCheckpoint(WireMap):
    """``ends`` and ``names`` go together, by ascending stream_id. ``checkpoints`` are those of the
    streams that hold messages, in the same order.
    """

    ver: Version = 1
    hub_id: Bytes32
    hub_public: Bytes32
    profile_id: Bytes32
    created_at: int
    log_root: Bytes32
    ends: tuple[StreamEnd, ...]
    names: tuple[str, ...]
    checkpoints: tuple[Checkpoint, ...]
    hub_sig: Bytes64 = bytes(64)

    def rule(self) -> None:
        ids = [end.stream_id for end in self.ends]
        if any(left >= right for left, right in pairwise(ids)):
            raise Malformed("recorder checkpoint: streams out of order or duplicate")
        if ids != [stream_id(name) for name in self.names]:
            raise Malformed("recorder checkpoint: the names are not those of its streams")
        if self.log_root != log_root(self.ends):
            raise Malformed("recorder checkpoint: log_root does not match its streams")
        ends = [(end.last_seq, end.mmr_root) for end in self.ends if end.last_seq]
        if ends != [(checkpoint.upto_seq, checkpoint.mmr_root) for checkpoint in self.checkpoints]:
            raise Malformed(
                "recorder checkpoint: the label checkpoints do not match the ends of the streams"
            )
        if any(end.mmr_root != EMPTY_ROOT for end in self.ends if not end.last_seq):
            raise Malformed("recorder checkpoint: an empty stream has a root")

    @property
    def checkpoint_id(self) -> bytes:
        return h(self.encode())

    def end(self, name: str) -> StreamEnd | None:
        """The end of the stream of that name; None if this does not cover it."""
        if name in self.names:
            return self.ends[self.names.index(name)]
        expected = stream_id(name)
        return next((end for end in self.ends if end.stream_id == expected), None)

    def signed(self, key: SigningKey) -> RecorderCheckpoint:
        return replace(self, hub_sig=key.sign(self._signing_digest()))

    def verify(self, hub: HubIdentity) -> None:
        """Raise Untrusted unless this hub signed all of it with keys valid at that time."""
        self.verify_signature(hub)
        named = [name for name, end in zip(self.names, self.ends, strict=True) if end.last_seq]
        for name, checkpoint in zip(named, self.checkpoints, strict=True):
            # The document dates it to created_at at the latest; the receipt is not here.
            self._verify_stream(hub, name, checkpoint, 0)

    def verify_entry_time(self, hub: HubIdentity, name: str, hub_ts: int) -> None:
        """Raise Untrusted for an entry dated after the document that is to cover it.

        The key of the stream's CHECKPOINT must not have retired before that entry, either.
        """
        if hub_ts > self.created_at:
            raise Untrusted(
                f"{name}: an entry of hub_ts {hub_ts} is later than the recorder checkpoint of "
                f"{self.created_at} that is to cover it"
            )
        label = derive_label(routing_key(hub.hub_id), stream_id(name), 0)
        for checkpoint in self.checkpoints:
            if checkpoint.label_curr == label:
                self._verify_stream(hub, name, checkpoint, hub_ts)

    def verify_signature(self, hub: HubIdentity) -> None:
        """Verify the document's own signature, without those of the checkpoints in it."""
        if self.hub_id != hub.hub_id:
            raise Untrusted(f"a recorder checkpoint of hub {self.hub_id.hex()}")
        keys = (key for key in hub.hub_keys if key.overlaps(self.created_at, self.created_at))
        if self.hub_public not in {key.hub_pk for key in keys}:
            raise Untrusted(f"{self.hub_public.hex()} is not a key of the hub at that time")
        if not signature_is_valid(self.hub_public, self.hub_sig, self._signing_digest()):
            raise Untrusted("the recorder checkpoint is not signed by its hub")

    def verify_follows(self, earlier: RecorderCheckpoint) -> None:
        """Raise Untrusted if this is behind an earlier document in time or in any stream."""
        if self.created_at < earlier.created_at:
            raise Untrusted(
                f"recorder checkpoint: created_at {self.created_at} is before "
                f"{earlier.created_at} of the one before"
            )
        ends = {end.stream_id: end for end in self.ends}
        for name, old in zip(earlier.names, earlier.ends, strict=True):
            new = ends.get(old.stream_id)
            if new is None or new.last_seq < old.last_seq:
                raise Untrusted(f"{name} ended at {old.last_seq} before and ends earlier now")
            if new.last_seq == old.last_seq and new.mmr_root != old.mmr_root:
                raise Untrusted(f"{name} has two different roots at {old.last_seq}")

    def _verify_stream(
        self, hub: HubIdentity, name: str, checkpoint: Checkpoint, hub_ts: int
    ) -> None:
        labels = EpochLabels(routing_key(hub.hub_id), stream_id(name), DEFAULT_PROFILE)
        try:
            checkpoint.verify_labels(labels)
            hub.verify_checkpoint(
                checkpoint, DEFAULT_PROFILE, not_before=hub_ts, not_after=self.created_at
            )
        except Untrusted as error:
            raise Untrusted(f"{name}: {error}") from error

    def _signing_digest(self) -> bytes:
        return ht("veen/recorder-checkpoint", replace(self, hub_sig=bytes(64)).encode())


def log_root(ends: Iterable[StreamEnd]) -> bytes:
    """One root over the ends of many streams, which are sorted by stream_id."""
    return ht("veen/log-root", cbor.dump([end.plain() for end in ends]))
