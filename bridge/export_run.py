"""An export from the log to the medium, in steps of which any may be the last (AGB0 4.3, 4.6).

What is begun is written to the audit log before a byte is on a medium, and finished by a second
entry after it was read back. Whatever was begun and not finished is done again first, from the
same range and checkpoint; so a number of the ledger never stands for two carriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from bridge import export_checkpoint
from bridge.audit_events import ExportSuccess
from bridge.carrier.ledger import Ledger, LedgerEntry
from bridge.carrier.watch import Watch, unwatched
from bridge.export_audit import ExportAudit
from bridge.export_carrier import Proven, Workshop
from bridge.export_delivery import Media, deliver
from bridge.export_gaps import Gap
from bridge.export_history import History, history
from bridge.export_log import ExportLog
from bridge.export_state import ExportState
from bridge.exporter import Caps, NothingThere, Opener, Range, RolledBack, Unopened, build, plan
from bridge.stream_map import ONLINE_LOG
from veen.client.client import Client
from veen.client.errors import HubRefused
from veen.errors import Malformed, Untrusted, VeenError
from veen.recorder_checkpoint import RecorderCheckpoint

T = TypeVar("T")
Prepared = tuple[LedgerEntry, Proven, Path]
"""A bundle that is begun in the log, and where it lies until it is on a medium."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A carrier that lies on its medium and is in the audit log."""

    entry: LedgerEntry
    bags: tuple[Path, ...]
    is_again: bool = False
    unopened: Unopened = field(default_factory=Unopened)


class StreamsFailed(VeenError):
    """Several streams could not be exported; the others were."""


class Exporter:
    """``streams`` are exported in their order; ``caps`` hold for bundles that are new."""

    def __init__(
        self,
        *,
        streams: Sequence[str],
        caps: Caps,
        state: ExportState,
        reader: Client,
        opener: Opener,
        workshop: Workshop,
        audit: ExportAudit,
        media: Media,
        watch: Watch = unwatched,
    ) -> None:
        self._streams = streams
        self._caps = caps
        self._state = state
        self._reader = reader
        self._opener = opener
        self._workshop = workshop
        self._audit = audit
        self._media = media
        self._watch = watch
        self._past: History = history((), workshop.signer.public)
        self._failed: list[VeenError] = []
        self._stuck: set[str] = set()

    def export(self) -> Iterator[Exported]:
        """All that is new up to the hub's last checkpoint, stream by stream."""
        with self._ready():
            yield from self._finish()
            checkpoint = self._checkpoint()
            for stream in self._streams:
                yield from self._export_stream(stream, checkpoint)

    def again(self, gaps: Iterable[Gap]) -> Iterator[Exported]:
        """Every bundle that holds an event of these ranges, as it was: the same bytes."""
        with self._ready():
            yield from self._finish()
            due = [one for gap in gaps for one in self._overlapping(gap)]
            for one in dict.fromkeys(due):
                prepared = self._apart(partial(self._repeated, one))
                if prepared is not None:
                    yield self._carry(*prepared)

    def heartbeat(self) -> Iterator[Exported]:
        """A carrier that only tells how far everything is."""
        with self._ready():
            yield from self._finish()
            checkpoint = self._checkpoint()
            for stream in self._streams:
                self._next(stream, checkpoint)
            with self._audit.failing(None):
                entry = self._begin(self._past.ledger().with_heartbeat(checkpoint))
            yield self._carry_heartbeat(entry, checkpoint)

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """Alone, with nothing left of earlier runs, and knowing the past."""
        with self._state.locked():
            self._state.clear()
            self._audit.settle()
            self._failed.clear()
            self._stuck.clear()
            with self._audit.failing(ONLINE_LOG):
                log = ExportLog(self._state.root, self._audit.author).read(self._reader)
                self._past = history(log, self._past.bridge_id)
            yield
            self._raise_failed()

    def _apart(self, prepare: Callable[[], T]) -> T | None:
        """Run what concerns one stream alone, before anything of it is begun.

        Its failure is recorded and raised at the end: the other streams are exported first.
        """
        try:
            return prepare()
        except (Untrusted, Malformed, HubRefused, NothingThere) as error:
            self._failed.append(error)
            return None

    def _raise_failed(self) -> None:
        if not self._failed:
            return
        first, *others = self._failed
        if not others:
            raise first
        raise StreamsFailed("; ".join(map(str, self._failed))) from first

    def _checkpoint(self) -> RecorderCheckpoint:
        with self._audit.failing(None):
            return export_checkpoint.latest(self._reader.session, self._state)

    def _next(self, stream: str, checkpoint: RecorderCheckpoint) -> Range | None:
        cursor = self._past.cursor(stream)
        with self._audit.failing(stream):
            found = plan(stream, cursor, checkpoint, self._caps.max_events)
        if found is None or stream != ONLINE_LOG:
            return found
        end = checkpoint.end(stream)
        is_new = end is not None and self._past.has_news(cursor.seq, end.last_seq)
        return found if is_new else None

    def _finish(self) -> Iterator[Exported]:
        """What earlier runs have begun; a stream of which that fails gets nothing new."""
        for entry in self._past.begun():
            finish = self._apart(partial(self._finishing, entry))
            if finish is None:
                self._stuck.add(entry.stream)
            else:
                yield finish()

    def _finishing(self, entry: LedgerEntry) -> Callable[[], Exported]:
        """How to bring to the medium what was begun, once it is here again as it was."""
        with self._audit.failing(entry.stream or None, entry):
            checkpoint = self._found_again(entry.checkpoint_id, entry.created_at)
            if entry.bundle_id is None:
                return partial(self._carry_heartbeat, entry, checkpoint)
            wanted = Range(entry.stream, entry.from_seq, entry.to_seq, checkpoint)
            folder = self._state.attempt(f"{entry.n}")
            return partial(self._carry, entry, self._same(entry.bundle_id, wanted, folder), folder)

    def _export_stream(self, stream: str, checkpoint: RecorderCheckpoint) -> Iterator[Exported]:
        while stream not in self._stuck:
            prepared = self._apart(partial(self._prepared, stream, checkpoint))
            if prepared is None:
                return
            yield self._carry(*prepared)

    def _prepared(self, stream: str, checkpoint: RecorderCheckpoint) -> Prepared | None:
        """The next bundle of a stream, begun in the log and not yet on a medium."""
        wanted = self._next(stream, checkpoint)
        if wanted is None:
            return None
        with self._audit.failing(stream):
            folder = self._state.attempt(f"{len(self._past.entries) + 1}")
            proven = self._proven(wanted, self._caps, folder, self._opener)
            entry = self._begin(self._past.ledger().with_bundle(proven.header))
        return entry, proven, folder

    def _repeated(self, one: ExportSuccess) -> Prepared:
        with self._audit.failing(one.stream):
            checkpoint = self._found_again(one.checkpoint_id, one.checkpoint_at)
            wanted = Range(one.stream, one.from_seq, one.to_seq, checkpoint)
            folder = self._state.attempt(f"{one.n}")
            proven = self._same(one.bundle_id, wanted, folder)
            if one.bridge_id == self._past.bridge_id:
                entry = self._past.entries[one.n - 1]
            else:
                entry = self._begin(self._past.ledger().with_bundle(proven.header))
        return entry, proven, folder

    def _overlapping(self, gap: Gap) -> tuple[ExportSuccess, ...]:
        found = self._past.overlapping(gap.stream, gap.from_seq, gap.to_seq)
        if not found:
            raise NothingThere(
                f"no event of {gap.stream} from {gap.from_seq} to {gap.to_seq} was exported yet; "
                "run veen bridge export without a range"
            )
        end = self._past.cursor(gap.stream).seq
        if gap.to_seq > end:
            raise NothingThere(
                f"{gap.stream} was exported up to {end}, and {gap.from_seq} to {gap.to_seq} goes "
                "beyond; run veen bridge export without a range for what is new"
            )
        return found

    def _found_again(self, checkpoint_id: bytes, created_at: int) -> RecorderCheckpoint:
        session = self._reader.meet()
        return export_checkpoint.found_again(session, checkpoint_id, created_at)

    def _same(self, bundle_id: bytes, wanted: Range, folder: Path) -> Proven:
        """The bundle of that name once more; without its bodies disclosed, if it was so then."""
        proven = self._proven(wanted, None, folder, self._opener)
        if proven.header.bundle_id != bundle_id:
            proven.file.unlink()
            proven = self._proven(wanted, None, folder, Opener((), self._reader.session.limits))
        if proven.header.bundle_id != bundle_id:
            raise RolledBack(
                f"{wanted.stream} {wanted.from_seq} to {wanted.to_seq} does not give bundle "
                f"{bundle_id.hex()} again: the hub tells another history, or the keys that opened "
                "it then are gone; compare the hub with its archive"
            )
        return proven

    def _proven(self, wanted: Range, caps: Caps | None, folder: Path, opener: Opener) -> Proven:
        with self._watch(f"reading {wanted.stream}", "events") as progress:
            header, file, unopened = build(self._reader, opener, wanted, caps, folder, progress)
        proven = self._workshop.prove(header, file, self._past.roots(wanted.stream))
        return replace(proven, unopened=unopened)

    def _begin(self, ledger: Ledger) -> LedgerEntry:
        entry = ledger.tail[-1]
        self._audit.begin(entry)
        self._past = self._past.with_entry(entry)
        return entry

    def _carry(self, entry: LedgerEntry, proven: Proven, folder: Path) -> Exported:
        bags = self._deliver(entry, proven.file, folder)
        done = self._audit.success(entry, proven)
        is_again = self._past.is_recorded(done)
        if not is_again:
            self._audit.finish(done)
            self._past = self._past.with_success(done)
        self._state.clear()
        return Exported(entry=entry, bags=bags, is_again=is_again, unopened=proven.unopened)

    def _carry_heartbeat(self, entry: LedgerEntry, checkpoint: RecorderCheckpoint) -> Exported:
        with self._audit.failing(None, entry):
            folder = self._state.attempt(f"{entry.n}")
            file = folder / "checkpoint.cbor"
            file.write_bytes(checkpoint.encode())
        bags = self._deliver(entry, file, folder)
        self._audit.finish(self._audit.heartbeat(entry))
        self._past = self._past.with_done(entry.n)
        self._state.clear()
        return Exported(entry=entry, bags=bags)

    def _deliver(self, entry: LedgerEntry, file: Path, folder: Path) -> tuple[Path, ...]:
        with self._audit.failing(entry.stream or None, entry):
            staged = self._workshop.carrier(file, self._past.ledger(entry.n), folder)
            with self._watch(f"writing {self._media.medium_id}", "bytes") as progress:
                return deliver(staged, self._media, progress)
