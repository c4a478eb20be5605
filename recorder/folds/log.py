"""A label of an archive: verified entries of a range, and the verified receipt at a position.

An entry is accepted when its frame is complete, the hub has signed its position and leaf, and the
client has signed the message. That the roots follow from the leaves is verified by an audit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from recorder.archive.manifest import ArchivedSegment, ArchiveManifest, LabelManifest, TailSegment
from recorder.archive.store import HubArchive
from recorder.folds.archive_log import Window, headers, next_entry
from recorder.folds.cache import Cache, FoldKeys, FoldPlaces, scan
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.invariants import Rules, Violation, verify_signatures
from veen.limits import Limits
from veen.log import layout
from veen.log.entry import FramedEntry
from veen.objects.port import ObjectMissing
from veen.overlay.fold import SeqRun

Part = ArchivedSegment | TailSegment


class NotArchived(VeenError):
    """A label, or positions of it, that the archive does not hold."""


class NothingArchived(NotArchived):
    """A stream of which the archive holds no event."""


class ArchivedLog:
    def __init__(
        self, archive: HubArchive, manifest: bytes, label: bytes, *, cache: Cache, block: int
    ) -> None:
        document = archive.document(manifest, ArchiveManifest)
        self.label = label
        self.hub = archive.identity(document)
        self.keys = FoldKeys(archive.keys.hub_id, label)
        self.block = block
        self._archive = archive
        self._cache = cache
        self._limits = Limits()
        self._rules = _rules(self.hub, self._limits)
        self._parts = _label(archive, document, label).parts
        self._ends = [part.end_seq for part in self._parts]
        self._places: dict[int, FoldPlaces] = {}
        self._place_keys: dict[int, str] = {}

    @property
    def end_seq(self) -> int:
        return self._ends[-1] if self._ends else 0

    def entries(self, run: SeqRun) -> Iterator[FramedEntry]:
        """Yield every entry of the run in order."""
        seq = run.from_seq
        while seq <= run.to_seq:
            part = self._part(seq)
            upto = min(run.to_seq, part.end_seq)
            yield from self._within(part, SeqRun(seq, upto))
            seq = upto + 1

    def entry(self, stream_seq: int) -> FramedEntry:
        """Return one entry by its position."""
        part = self._part(stream_seq)
        place = self._places_of(part).at(stream_seq)
        if place is None:
            return next(self._within(part, SeqRun(stream_seq, stream_seq)))
        window = Window(self._archive.objects, self._key(part), place.offset, place.size)
        with self._translate_errors(window, part):
            return self._verified(next_entry(window, self._limits), stream_seq)

    def _within(self, part: Part, run: SeqRun) -> Iterator[FramedEntry]:
        first, offset = self._places_of(part).start_of(run.from_seq)
        window = Window(self._archive.objects, self._key(part), offset)
        for seq in range(run.from_seq, run.to_seq + 1):
            with self._translate_errors(window, part):
                if seq == run.from_seq:
                    self._skip(window, run.from_seq - first)
                entry = self._verified(next_entry(window, self._limits), seq)
            yield entry

    def _skip(self, window: Window, count: int) -> None:
        for _ in islice(headers(window, self._limits), count):
            pass

    def _verified(self, entry: FramedEntry, stream_seq: int) -> FramedEntry:
        msg, receipt = entry.msg, entry.receipt
        if (receipt.label, receipt.stream_seq) != (self.label, stream_seq):
            raise Untrusted(f"expected entry {stream_seq}, got {receipt.stream_seq}")
        if not msg.ct_hash_matches():
            raise Violation("I1", stream_seq, "ct_hash is not the hash of the ciphertext")
        if msg.leaf_hash() != receipt.leaf_hash:
            raise Violation("I2", stream_seq, "leaf_hash is not that of the message")
        verify_signatures(msg, receipt, self._rules)
        return entry

    def _places_of(self, part: Part) -> FoldPlaces:
        if part.start_seq not in self._places:
            self._places[part.start_seq] = self._find_places(part)
        return self._places[part.start_seq]

    def _find_places(self, part: Part) -> FoldPlaces:
        run = SeqRun(part.start_seq, part.end_seq)
        key = self.keys.places(run, self.block)
        raw = self._cache.get(key) if isinstance(part, ArchivedSegment) else None
        if raw is not None:
            self._place_keys[part.start_seq] = key
            return self._cached(raw, key, run)
        window = Window(self._archive.objects, self._key(part), 0)
        with self._translate_errors(window, part):
            places = scan(window, self.label, run, self.block, self._limits)
        # A tail is soon replaced by a longer one: its places are not worth an object.
        if isinstance(part, ArchivedSegment):
            self._cache.put(key, places.encode())
        return places

    def _cached(self, raw: bytes, key: str, run: SeqRun) -> FoldPlaces:
        try:
            places = FoldPlaces.decode(raw)
        except Malformed as error:
            raise Untrusted(f"{key}: {error}; delete that object and fold again") from error
        if (places.label, places.from_seq, places.to_seq, places.block) != (
            self.label, run.from_seq, run.to_seq, self.block,
        ):  # fmt: skip
            raise Untrusted(
                f"{key}: expected the places of its chunk, got another's; delete that object and "
                "fold again"
            )
        return places

    def _part(self, stream_seq: int) -> Part:
        if not 1 <= stream_seq <= self.end_seq:
            raise NotArchived(f"the archive ends at stream_seq {self.end_seq} of this label")
        part = self._parts[bisect_left(self._ends, stream_seq)]
        if isinstance(part, ArchivedSegment) and part.is_pruned:
            which = f"stream_seq {part.start_seq} to {part.end_seq}"
            raise NotArchived(f"{which} were pruned before they were archived")
        return part

    def _key(self, part: Part) -> str:
        if isinstance(part, TailSegment):
            return self._archive.keys.tail(self.label, part.start_seq, part.end_seq)
        return self._archive.keys.file(layout.chunk(part.name(self.label)))

    @contextmanager
    def _translate_errors(self, window: Window, part: Part) -> Iterator[None]:
        """Raise Untrusted with the object and the offset, and the cached places that led there."""
        try:
            yield
        except ObjectMissing as error:
            raise Untrusted(f"the archive lacks {window.key}, which its manifest names") from error
        except (Malformed, Untrusted) as error:
            key = self._place_keys.get(part.start_seq)
            by = f"; its place is by {key}, which can be deleted" if key else ""
            raise Untrusted(f"{window.key}, before byte {window.at}: {error}{by}") from error


def _label(archive: HubArchive, manifest: ArchiveManifest, label: bytes) -> LabelManifest:
    label_manifest = archive.label(manifest, label)
    if label_manifest is None:
        raise NotArchived(f"the archive holds nothing of label {label.hex()}")
    return label_manifest


def _rules(hub: HubIdentity, limits: Limits) -> Rules:
    return Rules(hub=hub, profiles={}, limits=limits, stream=None)
