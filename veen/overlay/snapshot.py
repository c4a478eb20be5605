"""State snapshots: the hash of a folded state at a place of the log (operation profiles, 7).

``OVERLAYS`` lists all overlays by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic

from veen.digest import h, ht
from veen.errors import Malformed, Untrusted, VeenError
from veen.overlay.crdt import GrowOnlyCounter, LastWriterWins, ObservedRemoveSet
from veen.overlay.ledger import OverlayLedger
from veen.overlay.overlay import Overlay, S
from veen.overlay.statistics import RecorderStatistics
from veen.wire.body import AnyItem, EventBody
from veen.wire.schema import Bytes32

OVERLAYS: Final[tuple[Overlay[Any], ...]] = (
    GrowOnlyCounter(),
    LastWriterWins(),
    OverlayLedger(),
    ObservedRemoveSet(),
    RecorderStatistics(),
)
_BY_NAME: Final = {overlay.name: overlay for overlay in OVERLAYS}
SCHEMA = h(b"veen/schema:state.checkpoint.v1")


class UnknownOverlay(VeenError, LookupError):
    """No overlay has this name."""


def overlay_named(name: str) -> Overlay[Any]:
    if name not in _BY_NAME:
        raise UnknownOverlay(f"unknown overlay {name!r}: expected one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCheckpoint(EventBody):
    state_id: Bytes32
    upto_stream_seq: int
    mmr_root: Bytes32
    state_hash: Bytes32
    state_class: str
    metadata: AnyItem | None = None

    def rule(self) -> None:
        if self.upto_stream_seq < 1:
            raise Malformed("empty snapshot: expected no root, got one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix(Generic[S]):
    """A label up to a stream_seq, with its verified root there and its state."""

    overlay: Overlay[S]
    label: bytes
    upto_seq: int
    mmr_root: bytes
    state: S

    def state_of(self, state_id: bytes) -> S:
        """The whole state for the label itself, or the part of another ``state_id``."""
        if state_id == self.label:
            return self.state
        return self.overlay.part(self.state, state_id)

    def checkpoint(self, state_id: bytes, metadata: AnyItem | None = None) -> StateCheckpoint:
        return StateCheckpoint(
            state_id=state_id,
            upto_stream_seq=self.upto_seq,
            mmr_root=self.mmr_root,
            state_hash=state_hash(self.overlay.name, self.state_of(state_id).encode()),
            state_class=self.overlay.name,
            metadata=metadata,
        )


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A field of a snapshot that differs from the log, with both values as text."""

    field: str
    claimed: str
    computed: str


def state_hash(state_class: str, serialized_state: bytes) -> bytes:
    return ht("veen/state-" + state_class, serialized_state)


def first_mismatch(claim: StateCheckpoint, prefix: Prefix[S], state_id: bytes) -> Mismatch | None:
    """The first field that differs from the log: its subject first, then its content."""
    expected = prefix.checkpoint(state_id)
    pairs = (
        ("state_class", claim.state_class, expected.state_class),
        ("upto_stream_seq", str(claim.upto_stream_seq), str(expected.upto_stream_seq)),
        ("state_id", claim.state_id.hex(), expected.state_id.hex()),
        ("mmr_root", claim.mmr_root.hex(), expected.mmr_root.hex()),
        ("state_hash", claim.state_hash.hex(), expected.state_hash.hex()),
    )
    differing = (Mismatch(*pair) for pair in pairs if pair[1] != pair[2])
    return next(differing, None)


def verify(claim: StateCheckpoint, prefix: Prefix[S], state_id: bytes) -> None:
    """Raise Untrusted for a snapshot that differs from the log (7.4)."""
    mismatch = first_mismatch(claim, prefix, state_id)
    if mismatch is not None:
        raise Untrusted(
            f"{mismatch.field}: expected {mismatch.computed} from the log, got {mismatch.claimed}"
        )
