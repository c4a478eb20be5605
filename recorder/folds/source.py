"""The sources of a fold over an archive: cached summaries, signed roots, and decrypted events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from recorder.folds.cache import Cache, NoCache
from recorder.folds.log import ArchivedLog
from veen.crypto import hpke_public_key
from veen.digest import ht
from veen.errors import Malformed, Unopenable, Untrusted
from veen.label import Profile
from veen.limits import Limits
from veen.msg import Msg
from veen.overlay.fold import FoldSummary, Node, Scope, SeqRun, SignedRoot
from veen.overlay.overlay import Event, Overlay
from veen.payload import Opened, open_with_any
from veen.receipt import Receipt

_MAX_ROOTS: Final = 4_096
"""Roots cached in memory; a path of the tree needs far fewer."""


class FoldReader:
    """Opens payloads with the reader's keys, under the profile of a stream."""

    def __init__(self, keys: Sequence[bytes], profile: Profile, limits: Limits) -> None:
        self._keys = list(keys)
        self._profile = profile
        self._limits = limits

    def scope(self) -> bytes:
        """A hash that identifies the keys, since a fold with other keys can have another result."""
        publics = sorted(hpke_public_key(key) for key in self._keys)
        return ht("veen/fold-reader", self._profile.profile_id(), *publics)

    def event(self, msg: Msg, receipt: Receipt) -> Event:
        """A verified message as overlays see it.

        A payload that our keys do not open stays closed.
        """
        place = {"stream_seq": receipt.stream_seq, "hub_ts": receipt.hub_ts}
        opened = self._open(msg)
        if opened is None:
            return Event.unopened(**place, client_id=msg.client_id)
        return Event(
            **place, client_id=msg.client_id, schema=opened.header.schema, body=opened.body
        )

    def _open(self, msg: Msg) -> Opened | None:
        try:
            return open_with_any(self._keys, msg, self._profile, self._limits)
        except Unopenable:
            return None


Report = Callable[[int], None]


def no_report(_events: int) -> None:
    """Ignore progress."""


@dataclass(slots=True)
class FoldWork:
    """Counters of the work of a fold so far."""

    events: int = 0
    summaries: int = 0
    stored: int = 0


class ArchiveSource:
    """The port ``veen.overlay.fold.Source`` over one label of an archive."""

    def __init__(
        self,
        log: ArchivedLog,
        overlay: Overlay[Any],
        reader: FoldReader,
        *,
        cache: Cache,
        report: Report = no_report,
    ) -> None:
        self.log = log
        self.work = FoldWork()
        self._scope = Scope(overlay, log.label)
        self._reader = reader
        self._reader_scope = reader.scope()
        self._cache = cache
        self._report = report
        self._roots: dict[int, SignedRoot] = {}

    def summary(self, node: Node) -> FoldSummary | None:
        if isinstance(self._cache, NoCache):
            return None
        root = self.root(node.run.to_seq)
        key = self._key(node, root)
        raw = self._cache.get(key)
        if raw is None:
            return None
        self.work.summaries += 1
        try:
            fold_summary = FoldSummary.decode(raw)
            fold_summary.verify(self._scope, node, root.mmr_root)
        except (Malformed, Untrusted) as error:
            raise Untrusted(
                f"{key}: {error}. Delete that object, or all of {self.log.keys.prefix} "
                "with --drop-summaries, and fold again"
            ) from error
        return fold_summary

    def keep(self, summary: FoldSummary) -> None:
        if isinstance(self._cache, NoCache):
            return
        node = _node(summary)
        self._cache.put(self._key(node, self.root(summary.to_seq)), summary.encode())
        self.work.stored += 1

    def root(self, upto_seq: int) -> SignedRoot:
        if upto_seq not in self._roots:
            if len(self._roots) >= _MAX_ROOTS:
                self._roots.clear()
            self._roots[upto_seq] = SignedRoot.of_receipt(self.log.entry(upto_seq).receipt)
        return self._roots[upto_seq]

    def events(self, run: SeqRun) -> Iterator[Event]:
        for entry in self.log.entries(run):
            yield self._reader.event(entry.msg, entry.receipt)
        self.work.events += run.size
        self._report(self.work.events)

    def _key(self, node: Node, root: SignedRoot) -> str:
        return self.log.keys.summary(self._scope, self._reader_scope, node, root.mmr_root)


def _node(summary: FoldSummary) -> Node:
    """The node of a summary."""
    height = ((summary.to_seq - summary.from_seq + 1) // summary.block).bit_length() - 1
    span = summary.block << height
    return Node(summary.block, height, summary.to_seq // span - 1)
