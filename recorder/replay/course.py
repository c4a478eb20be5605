"""How far an output has come: its records in the one order they can have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from recorder.replay.plan import Plan
from recorder.replay.record import Proof
from recorder.replay.stretch import Stretch, at
from veen.errors import Untrusted
from veen.receipt import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAt:
    """What comes next in a stream, the leaf before it, and the last proof that was written."""

    next_seq: int
    leaf: bytes = b""
    proof_from: int = 0
    proof_to: int = 0

    @property
    def is_amid_proof(self) -> bool:
        return self.next_seq <= self.proof_to


class Course:
    """Takes records one by one, and refuses the first that does not belong where it stands."""

    def __init__(self, plan: Plan, places: Mapping[str, StreamAt] | None = None) -> None:
        self.plan = plan
        self._stretches = {one.stream: one for one in plan.stretches}
        self._places = {one.stream: StreamAt(next_seq=one.from_seq) for one in plan.stretches}
        self._places.update(places or {})
        self._last: tuple[int, str, int] = (0, "", 0)
        self._proved = ""
        self.kinds: Counter[str] = Counter()

    @property
    def done(self) -> int:
        return sum(self._places[one.stream].next_seq - one.from_seq for one in self.plan.stretches)

    @property
    def is_complete(self) -> bool:
        return self.done == self.plan.count

    def of(self, stream: str) -> StreamAt:
        return self._places[stream]

    def proof(self, proof: Proof) -> None:
        stretch, place = self._at(proof.stream, proof.proof.from_seq)
        if place.is_amid_proof or proof.proof.from_seq != place.next_seq:
            raise Untrusted(f"{at(proof.stream, place.next_seq)}: a proof of other places follows")
        if not place.next_seq <= proof.proof.to_seq <= min(stretch.to_seq, stretch.proven_to):
            raise Untrusted(f"{at(proof.stream, proof.proof.to_seq)}: a proof beyond the replay")
        self._refuse_between(proof.stream, place.next_seq)
        self._proved = proof.stream
        self._places[proof.stream] = StreamAt(
            next_seq=place.next_seq,
            leaf=place.leaf,
            proof_from=place.next_seq,
            proof_to=proof.proof.to_seq,
        )

    def item(self, stream: str, receipt: Receipt, *, proven: bool) -> None:
        stretch, place = self._at(stream, receipt.stream_seq)
        seq, order = receipt.stream_seq, (receipt.hub_ts, stream, receipt.stream_seq)
        if seq != place.next_seq or seq > stretch.to_seq:
            raise Untrusted(f"{at(stream, place.next_seq)}: {seq} stands in its place")
        if order < self._last:
            raise Untrusted(f"{at(stream, seq)}: out of order, it follows {at(*self._last[1:])}")
        if not self.plan.wanted.holds(receipt.hub_ts):
            raise Untrusted(f"{at(stream, seq)}: of {receipt.hub_ts}, outside the window")
        if proven != (seq <= stretch.proven_to):
            raise Untrusted(f"{at(stream, seq)}: it is marked as what it is not")
        if proven and self.plan.wanted.with_proofs and not place.is_amid_proof:
            raise Untrusted(f"{at(stream, seq)}: no proof comes before it")
        self._refuse_between(stream, seq)
        self._last, self._proved = order, ""
        self._places[stream] = StreamAt(
            next_seq=seq + 1,
            leaf=receipt.leaf_hash,
            proof_from=place.proof_from,
            proof_to=place.proof_to,
        )

    def verify_complete(self) -> None:
        for one in self.plan.stretches:
            place = self._places[one.stream]
            if place.next_seq <= one.to_seq:
                raise Untrusted(
                    f"{at(one.stream, place.next_seq)}: it is missing, the replay goes to "
                    f"{one.to_seq}"
                )

    def _refuse_between(self, stream: str, seq: int) -> None:
        if self._proved not in ("", stream):
            raise Untrusted(f"{at(stream, seq)}: it parts a proof from its first item")

    def _at(self, stream: str, seq: int) -> tuple[Stretch, StreamAt]:
        if stream not in self._stretches:
            raise Untrusted(f"{at(stream, seq)}: the replay is not of this stream")
        return self._stretches[stream], self._places[stream]
