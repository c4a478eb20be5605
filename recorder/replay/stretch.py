"""A stretch of one stream that belongs to a replay, and what shows that it is all of it."""

from __future__ import annotations

from dataclasses import dataclass

from recorder.replay.wanted import Wanted
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.invariants import Rules, verify_signatures
from veen.label import EpochLabels, routing_key
from veen.limits import Limits
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE
from veen.range_proof import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import EMPTY_ROOT, RecorderCheckpoint
from veen.stream import stream_id
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour(WireMap):
    """The message just outside a stretch; above the checkpoint there is no proof of it."""

    msg: Msg
    receipt: Receipt
    proof: RangeProof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch(WireMap):
    """Places from .. to, none when ``to_seq`` is just before ``from_seq``.

    The checkpoint proves places up to ``proven_to``; ``limit`` is the last that could belong.
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

    def verify(self, wanted: Wanted, hub: HubIdentity, checkpoint: RecorderCheckpoint) -> None:
        """Refuse unless it has every place that was wanted, and no other."""
        end = checkpoint.end(self.stream)
        if self.proven_to != (end.last_seq if end else 0) or self.limit < self.proven_to:
            raise self._wrong(self.proven_to, "the checkpoint ends elsewhere")
        if self.limit > self.proven_to and not wanted.unproven:
            raise self._wrong(self.limit, "it is above the checkpoint")
        if not 0 < self.from_seq <= self.to_seq + 1 <= self.limit + 1:
            raise self._wrong(self.from_seq, f"a stretch up to {self.to_seq} of {self.limit}")
        if wanted.by_place:
            self._verify_places(wanted)
        else:
            self._verify_before(wanted, hub, checkpoint)
            self._verify_after(wanted, hub, checkpoint)

    def _verify_places(self, wanted: Wanted) -> None:
        due = (wanted.from_seq or 1, self.limit if wanted.to_seq is None else wanted.to_seq)
        if (self.from_seq, self.to_seq) != due:
            raise self._wrong(self.from_seq, f"a stretch up to {self.to_seq}, {due} was wanted")

    def _verify_before(
        self, wanted: Wanted, hub: HubIdentity, checkpoint: RecorderCheckpoint
    ) -> None:
        seq = self.from_seq - 1
        if seq == 0:
            return
        if wanted.start is None:
            raise self._wrong(seq, "it was left out")
        hub_ts = self._verified(seq, self.before, hub, checkpoint)
        if hub_ts >= wanted.start:
            raise self._wrong(seq, f"it is of {hub_ts}, within the window, and was left out")

    def _verify_after(
        self, wanted: Wanted, hub: HubIdentity, checkpoint: RecorderCheckpoint
    ) -> None:
        seq = self.to_seq + 1
        if seq > self.limit:
            return
        if wanted.end is None:
            raise self._wrong(seq, "it was left out")
        hub_ts = self._verified(seq, self.after, hub, checkpoint)
        if hub_ts <= wanted.end:
            raise self._wrong(seq, f"it is of {hub_ts}, within the window, and was left out")

    def _verified(
        self, seq: int, found: Neighbour | None, hub: HubIdentity, checkpoint: RecorderCheckpoint
    ) -> int:
        """The hub time of a neighbour that is what it has to be."""
        if found is None:
            raise self._wrong(seq, "nothing shows that it lies outside the window")
        rules = rules_of(hub, self.stream)
        receipt, leaf = found.receipt, found.msg.leaf_hash()
        label = labels_of(hub, self.stream).at(0)
        if (receipt.label, receipt.stream_seq, receipt.leaf_hash) != (label, seq, leaf):
            raise self._wrong(seq, "the receipt is of another message or place")
        try:
            verify_signatures(found.msg, receipt, rules)
            if seq <= self.proven_to:
                verify_proof(checkpoint, self.stream, (seq, seq), found.proof, [leaf])
        except Untrusted as error:
            raise self._wrong(seq, str(error)) from error
        return receipt.hub_ts

    def _wrong(self, seq: int, why: str) -> Untrusted:
        return Untrusted(f"{at(self.stream, seq)}: {why}")


def verify_proof(
    checkpoint: RecorderCheckpoint,
    stream: str,
    places: tuple[int, int],
    proof: RangeProof | None,
    leaves: list[bytes],
) -> None:
    """Refuse unless the checkpoint has exactly these leaves at these places."""
    end = checkpoint.end(stream)
    size, root = (end.last_seq, end.mmr_root) if end else (0, EMPTY_ROOT)
    if proof is None or (proof.from_seq, proof.to_seq) != places:
        raise Untrusted("there is no proof of it against the checkpoint")
    proof.verify(leaves=leaves, size=size, root=root)


def at(stream: str, seq: int) -> str:
    """A place, for whoever is told that something is wrong there."""
    return f"{stream}, stream_seq {seq}"


def labels_of(hub: HubIdentity, stream: str) -> EpochLabels:
    return EpochLabels(routing_key(hub.hub_id), stream_id(stream), DEFAULT_PROFILE)


def rules_of(hub: HubIdentity, stream: str) -> Rules:
    profiles = {DEFAULT_PROFILE.profile_id(): DEFAULT_PROFILE}
    return Rules(hub=hub, profiles=profiles, limits=Limits(), stream=labels_of(hub, stream))
