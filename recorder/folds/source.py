"""Where a fold over an archive finds what it needs: summaries, roots, and opened events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from recorder.folds.cache import Cache, NoCache
from recorder.folds.log import ArchivedLog
from recorder.folds.reader import FoldReader
from veen.errors import Malformed, Untrusted
from veen.overlay.event import Event
from veen.overlay.overlay import Overlay
from veen.overlay.summary import Scope, SignedRoot, Summary
from veen.overlay.tree import Node, Run

_ROOTS: Final = 4_096
"""Roots held at hand: those of a path of the tree, and many more."""

Report = Callable[[int], None]


def unheard(_events: int) -> None:
    """Nobody wants to know."""


@dataclass(slots=True)
class Work:
    """What a fold has cost so far."""

    events: int = 0
    summaries: int = 0
    kept: int = 0


class ArchiveSource:
    """The port ``veen.overlay.fold.Source`` over one label of an archive."""

    def __init__(
        self,
        log: ArchivedLog,
        overlay: Overlay[Any],
        reader: FoldReader,
        *,
        cache: Cache,
        report: Report = unheard,
    ) -> None:
        self.log = log
        self.work = Work()
        self._scope = Scope(overlay, log.label)
        self._reader = reader
        self._reader_scope = reader.scope()
        self._cache = cache
        self._report = report
        self._roots: dict[int, SignedRoot] = {}

    def summary(self, node: Node) -> Summary | None:
        if isinstance(self._cache, NoCache):
            return None
        root = self.root(node.run.to_seq)
        key = self._key(node, root)
        raw = self._cache.get(key)
        if raw is None:
            return None
        self.work.summaries += 1
        try:
            found = Summary.decode(raw)
            found.verify(self._scope, node, root.mmr_root)
        except (Malformed, Untrusted) as error:
            raise Untrusted(
                f"{key}: {error}. Delete that object, or all of {self.log.keys.prefix} "
                "with --drop-summaries, and fold again"
            ) from error
        return found

    def keep(self, summary: Summary) -> None:
        if isinstance(self._cache, NoCache):
            return
        node = _node(summary)
        self._cache.put(self._key(node, self.root(summary.to_seq)), summary.encode())
        self.work.kept += 1

    def root(self, upto_seq: int) -> SignedRoot:
        if upto_seq not in self._roots:
            if len(self._roots) >= _ROOTS:
                self._roots.clear()
            self._roots[upto_seq] = SignedRoot.of_receipt(self.log.entry(upto_seq).receipt)
        return self._roots[upto_seq]

    def events(self, run: Run) -> Iterator[Event]:
        for found in self.log.entries(run):
            yield self._reader.event(found.msg, found.receipt)
        self.work.events += run.size
        self._report(self.work.events)

    def _key(self, node: Node, root: SignedRoot) -> str:
        return self.log.keys.summary(self._scope, self._reader_scope, node, root.mmr_root)


def _node(summary: Summary) -> Node:
    """The node that a summary is of."""
    height = ((summary.to_seq - summary.from_seq + 1) // summary.block).bit_length() - 1
    span = summary.block << height
    return Node(summary.block, height, summary.to_seq // span - 1)
