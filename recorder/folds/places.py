"""Where the last entry of each block lies in a chunk, so that nobody reads a chunk to find it.

It is derived from the chunk and says nothing that is believed: whoever follows it finds the entry
it names, with its receipt, or refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from recorder.folds.window import Window, headers
from veen.errors import Malformed
from veen.limits import Limits
from veen.overlay.tree import Run
from veen.schema import Bytes32, Version
from veen.wire import WireArray, WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(WireArray):
    stream_seq: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Places(WireMap):
    ver: Version = 1
    label: Bytes32
    from_seq: int
    to_seq: int
    block: int
    places: tuple[Place, ...]

    def rule(self) -> None:
        if self.block < 1 or not 1 <= self.from_seq <= self.to_seq:
            raise Malformed(f"places from {self.from_seq} to {self.to_seq} by {self.block}")
        due = list(_due(self.from_seq, self.to_seq, self.block))
        if [one.stream_seq for one in self.places] != due:
            raise Malformed("not one place for each block that ends here")

    def at(self, stream_seq: int) -> Place | None:
        return next((one for one in self.places if one.stream_seq == stream_seq), None)

    def start_of(self, stream_seq: int) -> tuple[int, int]:
        """Where to begin to read an entry: the first stream_seq there, and its offset."""
        earlier = [one for one in self.places if one.stream_seq < stream_seq]
        if not earlier:
            return self.from_seq, 0
        return earlier[-1].stream_seq + 1, earlier[-1].offset + earlier[-1].size


def scan(window: Window, label: bytes, run: Run, block: int, limits: Limits) -> Places:
    """The places of a chunk with the entries of ``run``, from its headers."""
    due, found = run.from_seq, []
    for offset, header in headers(window, limits):
        if (header.label, header.stream_seq) != (label, due):
            raise Malformed(f"entry {header.stream_seq} stands where {due} is due")
        if due % block == 0:
            found.append(Place(stream_seq=due, offset=offset, size=header.whole_size))
        due += 1
    if due != run.to_seq + 1:
        raise Malformed(f"it ends before {due}, not after {run.to_seq}")
    return Places(
        label=label, from_seq=run.from_seq, to_seq=run.to_seq, block=block, places=tuple(found)
    )


def _due(from_seq: int, to_seq: int, block: int) -> range:
    return range(-(-from_seq // block) * block, to_seq + 1, block)
