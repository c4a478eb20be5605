"""The newest checkpoint seen of each source hub, which every other checkpoint must be consistent
with, including streams of which nothing is imported (I26).

The files lie beside the import ledger and not in it, so that they outlive a rebuilt ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from bridge.errors import CarrierRefused, printable
from bridge.importer.directory import ImportDirectory
from bridge.trust import TrustStore
from bridge.verify import trusted_hub, verify_checkpoint
from veen.errors import Malformed, VeenError
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable

RootAt = Callable[[int], bytes | None]
"""The root of a stream at an event, if it is known."""
_MAX_BYTES: Final = 1 << 20


class BadCheckpoint(VeenError):
    """A stored checkpoint that cannot be read."""


class Contradiction(NamedTuple):
    """Two signed checkpoints of a hub that no log has both of; they diverge at ``seq`` of
    ``stream`` at the latest.
    """

    stream: str
    seq: int
    detail: str
    held: RecorderCheckpoint
    other: RecorderCheckpoint


class SourceCheckpoints:
    """The stored checkpoints, one of each source hub."""

    def __init__(self, import_dir: ImportDirectory, trust: TrustStore) -> None:
        self._import_dir = import_dir
        self._trust = trust
        self._known: dict[bytes, RecorderCheckpoint | None] = {}

    def compare(
        self, checkpoint: RecorderCheckpoint, stream: str = "", root_at: RootAt | None = None
    ) -> Contradiction | None:
        """Compare a verified checkpoint, and the events of a stream that lead to it, with the
        stored checkpoint. Without a contradiction, a newer checkpoint replaces the stored one.
        """
        held = self._held(checkpoint.hub_id)
        if held is None:
            self._store(checkpoint)
            return None
        difference = contradiction(held, checkpoint)
        if difference is None and root_at is not None:
            difference = _contradicting_root(held, checkpoint, stream, root_at)
        if difference is None and is_followed(held, checkpoint):
            self._store(checkpoint)
        return difference

    def _held(self, hub_id: bytes) -> RecorderCheckpoint | None:
        """The stored checkpoint; None also if its key is no longer trusted."""
        if hub_id not in self._known:
            self._known[hub_id] = self._read(hub_id)
        return self._known[hub_id]

    def _read(self, hub_id: bytes) -> RecorderCheckpoint | None:
        path = self._import_dir.checkpoint(hub_id)
        if not path.exists():
            return None
        try:
            with path.open("rb") as file:
                checkpoint = RecorderCheckpoint.decode(file.read(_MAX_BYTES))
        except Malformed as error:
            raise BadCheckpoint(
                f"{path}: expected a recorder checkpoint, got a file that is none: {error}; remove "
                "it, and the next import stores one"
            ) from error
        try:
            verify_checkpoint(checkpoint, trusted_hub(hub_id, self._trust))
        except CarrierRefused:
            return None
        return checkpoint

    def _store(self, checkpoint: RecorderCheckpoint) -> None:
        durable.write(self._import_dir.checkpoint(checkpoint.hub_id), checkpoint.encode())
        self._known[checkpoint.hub_id] = checkpoint


def is_followed(earlier: RecorderCheckpoint, later: RecorderCheckpoint) -> bool:
    return _parting(earlier, later) is None and earlier.created_at <= later.created_at


def contradiction(held: RecorderCheckpoint, other: RecorderCheckpoint) -> Contradiction | None:
    """The contradiction of two checkpoints, neither of which extends the other.

    Of the same second, both orders are possible.
    """
    if is_followed(held, other) or is_followed(other, held):
        return None
    earlier, later = sorted((held, other), key=lambda item: item.created_at)
    parting = _parting(earlier, later)
    return None if parting is None else Contradiction(*parting, held, other)


def _parting(earlier: RecorderCheckpoint, later: RecorderCheckpoint) -> tuple[str, int, str] | None:
    """The first stream that is shorter in the later checkpoint, or has two roots at one place."""
    ends = {end.stream_id: end for end in later.ends}
    first, then = earlier.created_at, later.created_at
    for name, old in zip(earlier.names, earlier.ends, strict=True):
        new, what = ends.get(old.stream_id), f"by the checkpoints of hub time {first} and {then}"
        last = new.last_seq if new else 0
        if last < old.last_seq:
            detail = f"{printable(name)} ended at {old.last_seq}, and then at {last}, {what}"
            return name, old.last_seq, detail
        if new and last == old.last_seq and new.mmr_root != old.mmr_root:
            return name, last, f"{printable(name)} has two roots at {last}, {what}"
    return None


def _contradicting_root(
    held: RecorderCheckpoint, checkpoint: RecorderCheckpoint, stream: str, root_at: RootAt
) -> Contradiction | None:
    end = held.end(stream)
    root = root_at(end.last_seq) if end and end.last_seq else None
    if end is None or root is None or root == end.mmr_root:
        return None
    detail = (
        f"{printable(stream)} has one root at {end.last_seq} by the checkpoint of hub time "
        f"{held.created_at}, and another in the events that lead to that of {checkpoint.created_at}"
    )
    return Contradiction(stream, end.last_seq, detail, held, checkpoint)
