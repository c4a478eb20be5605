"""What folds keep beside an archive, and where: summaries, and places in chunks.

All of it is under ``folds/``, apart from the archive: a summary tells what events say in the
clear, so whoever may read it is decided apart, and it can be deleted as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from veen.layout import SEQ_DIGITS
from veen.objects.port import ObjectMissing, ObjectStore, Retention
from veen.overlay.summary import Scope
from veen.overlay.tree import Node, Run


class Cache(Protocol):
    def get(self, key: str) -> bytes | None:
        """What was kept under a key; None when nothing was."""

    def put(self, key: str, raw: bytes) -> None:
        """Keep it; the same bytes again change nothing, others are refused."""


class NoCache:
    """Nothing is known and nothing is kept: every fold begins with the events."""

    def get(self, _key: str) -> bytes | None:
        return None

    def put(self, _key: str, _raw: bytes) -> None:
        return None


@dataclass(frozen=True, slots=True)
class StoreCache:
    objects: ObjectStore

    def get(self, key: str) -> bytes | None:
        try:
            return self.objects.get(key)
        except ObjectMissing:
            return None

    def put(self, key: str, raw: bytes) -> None:
        self.objects.put(key, raw)


@dataclass(frozen=True, slots=True)
class FoldKeys:
    """The keys of one label of one hub."""

    hub_id: bytes
    label: bytes

    @property
    def prefix(self) -> str:
        return f"folds/{self.hub_id.hex()}/{self.label.hex()}/"

    def places(self, run: Run, block: int) -> str:
        return f"{self.prefix}places/{block}/{_seq(run.from_seq)}-{_seq(run.to_seq)}"

    def summaries(self, overlay: str) -> str:
        return f"{self.prefix}summary/{overlay}/"

    def summary(self, scope: Scope, reader: bytes, node: Node, mmr_root: bytes) -> str:
        """By all that a summary depends on, so that another log or reader has other keys."""
        kind = f"{scope.overlay.schema_set().hex()}/{reader.hex()}/{node.block}/{node.height}"
        place = f"{_seq(node.run.to_seq)}-{mmr_root.hex()}"
        return f"{self.summaries(scope.overlay.name)}{kind}/{place}"


def _seq(seq: int) -> str:
    return f"{seq:0{SEQ_DIGITS}d}"


def drop(objects: ObjectStore, retention: Retention, keys: FoldKeys) -> int:
    """Delete all that folds of a label have kept; the archive itself is elsewhere."""
    found = list(objects.keys(keys.prefix))
    for key in found:
        retention.delete(key)
    return len(found)
