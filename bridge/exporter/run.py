"""An export run from the log to the medium, which may be interrupted at any step (AGB0 4.3, 4.6).

The audit log is the write-ahead record of an export: an entry before a byte is written to a medium,
and a second entry after the medium was read back. Unfinished exports are repeated first, from the
same range and checkpoint. This is idempotent: a ledger number never stands for two carriers. An
export ends at a recorder checkpoint: the hub's latest, or that of the export that is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from bridge.audit_log import AuditWriter, Clock, ExportSuccess
from bridge.carrier.format import CarrierLedger, CarrierLedgerEntry
from bridge.connect import open_bridge_client, reader_keys
from bridge.exporter.build import (
    BodyOpener,
    Caps,
    ExportRange,
    NothingThere,
    Proven,
    RolledBack,
    Unopened,
    Workshop,
    build,
    plan,
)
from bridge.exporter.deliver import ExportAudit, Media, deliver
from bridge.exporter.gaps import ExportGap
from bridge.exporter.history import ExportHistory
from bridge.exporter.state import ExportState
from bridge.settings import BridgeSettings, ExportSettings
from bridge.stream_map import ONLINE_LOG
from veen.client.checkpoints import latest_recorder_checkpoint, verify_recorder_checkpoint
from veen.client.client import Client
from veen.client.connect import recipient
from veen.client.session import Session
from veen.client.transport import HubRefused, RetryPolicy
from veen.errors import Malformed, Untrusted, VeenError
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.config import BadSettings
from veen.system.environment import Runtime, Watch, no_progress_watch

T = TypeVar("T")


class NoExportCheckpoint(VeenError):
    """The hub has no recorder checkpoint to export up to."""

    error_code: ClassVar[str] = "NO_CHECKPOINT"
    audit_code: ClassVar[str] = "NoCheckpoint"


def latest_checkpoint(session: Session, state: ExportState) -> RecorderCheckpoint:
    """The hub's latest checkpoint, which must not be older than the last that this exporter saw."""
    earlier = state.last_checkpoint()
    checkpoint = latest_recorder_checkpoint(session, earlier)
    if checkpoint is None:
        raise NoExportCheckpoint(
            "the hub has no recorder checkpoint yet, and an export ends at one; create one with "
            "veen recorder checkpoint create"
        )
    if earlier is None or checkpoint != earlier:
        state.store_checkpoint(checkpoint)
    return checkpoint


def checkpoint_at(session: Session, checkpoint_id: bytes, created_at: int) -> RecorderCheckpoint:
    """The checkpoint that an earlier export ended at."""
    page = session.api.recorder_checkpoints(max(created_at - 1, 0), limit=10)
    for checkpoint in page.checkpoints:
        if checkpoint.checkpoint_id == checkpoint_id:
            verify_recorder_checkpoint(session, checkpoint, None)
            return checkpoint
    raise Untrusted(
        f"the hub does not have the recorder checkpoint {checkpoint_id.hex()} of {created_at} any "
        "more, which an export ended at: it was restored to an older state; restore it from its "
        "archive"
    )


Prepared = tuple[CarrierLedgerEntry, Proven, Path]
"""A bundle whose export is begun in the log, and its folder until it is on a medium."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedCarrier:
    """A carrier that is on its medium and in the audit log."""

    entry: CarrierLedgerEntry
    bags: tuple[Path, ...]
    is_again: bool = False
    unopened: Unopened = field(default_factory=Unopened)


class StreamsFailed(VeenError):
    """Several streams could not be exported; the others were."""


class Exporter:
    """Exports ``streams`` in their order; ``caps`` apply to new bundles only."""

    def __init__(
        self,
        *,
        streams: Sequence[str],
        caps: Caps,
        state: ExportState,
        reader: Client,
        opener: BodyOpener,
        workshop: Workshop,
        audit: ExportAudit,
        media: Media,
        watch: Watch = no_progress_watch,
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
        self._past: ExportHistory
        self._failed: list[VeenError] = []
        self._stuck: set[str] = set()

    def export(self) -> Iterator[ExportedCarrier]:
        """Export everything new up to the hub's latest checkpoint, stream by stream."""
        with self._ready():
            yield from self._finish()
            checkpoint = self._checkpoint()
            for stream in self._streams:
                yield from self._export_stream(stream, checkpoint)

    def again(self, gaps: Iterable[ExportGap]) -> Iterator[ExportedCarrier]:
        """Export every bundle with an event of these ranges again, byte for byte."""
        with self._ready():
            yield from self._finish()
            successes = [success for gap in gaps for success in self._overlapping(gap)]
            for success in dict.fromkeys(successes):
                prepared = self._apart(partial(self._repeated, success))
                if prepared is not None:
                    yield self._carry(*prepared)

    def heartbeat(self) -> Iterator[ExportedCarrier]:
        """Export a carrier with only the latest checkpoint."""
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
        """Take the lock, clear what earlier runs left, and read the history."""
        with self._state.locked():
            self._state.clear()
            self._audit.settle()
            self._failed.clear()
            self._stuck.clear()
            with self._history():
                yield
            self._raise_failed()

    @contextmanager
    def _history(self) -> Iterator[None]:
        with ExitStack() as stack:
            with self._audit.failing(ONLINE_LOG):
                self._past = stack.enter_context(
                    ExportHistory.opened(
                        self._state.history,
                        self._workshop.signer.public,
                        self._reader,
                        self._audit.author,
                    )
                )
            stack.enter_context(self._past.uncommitted())
            yield

    def _apart(self, prepare: Callable[[], T]) -> T | None:
        """Run a step that concerns one stream only, before its export is begun.

        Its failure is collected and raised at the end: the other streams are exported first.
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
            return latest_checkpoint(self._reader.session, self._state)

    def _next(self, stream: str, checkpoint: RecorderCheckpoint) -> ExportRange | None:
        cursor = self._past.cursor(stream)
        with self._audit.failing(stream):
            range_ = plan(stream, cursor, checkpoint, self._caps.max_events)
        if range_ is None or stream != ONLINE_LOG:
            return range_
        end = checkpoint.end(stream)
        is_new = end is not None and self._past.has_news(cursor.seq, end.last_seq)
        return range_ if is_new else None

    def _finish(self) -> Iterator[ExportedCarrier]:
        """Complete what earlier runs began; a stream where that fails gets no new export."""
        for entry in self._past.begun():
            finish = self._apart(partial(self._finishing, entry))
            if finish is None:
                self._stuck.add(entry.stream)
            else:
                yield finish()

    def _finishing(self, entry: CarrierLedgerEntry) -> Callable[[], ExportedCarrier]:
        """The delivery of a begun export, once its bundle is rebuilt byte for byte."""
        with self._audit.failing(entry.stream or None, entry):
            checkpoint = self._stored_checkpoint(entry.checkpoint_id, entry.created_at)
            if entry.bundle_id is None:
                return partial(self._carry_heartbeat, entry, checkpoint)
            range_ = ExportRange(entry.stream, entry.from_seq, entry.to_seq, checkpoint)
            folder = self._state.attempt(f"{entry.n}")
            return partial(self._carry, entry, self._same(entry.bundle_id, range_, folder), folder)

    def _export_stream(
        self, stream: str, checkpoint: RecorderCheckpoint
    ) -> Iterator[ExportedCarrier]:
        while stream not in self._stuck:
            prepared = self._apart(partial(self._prepared, stream, checkpoint))
            if prepared is None:
                return
            yield self._carry(*prepared)

    def _prepared(self, stream: str, checkpoint: RecorderCheckpoint) -> Prepared | None:
        """The next bundle of a stream, begun in the log and not yet on a medium."""
        expected = self._next(stream, checkpoint)
        if expected is None:
            return None
        with self._audit.failing(stream):
            folder = self._state.attempt(f"{self._past.last_n + 1}")
            proven = self._proven(expected, self._caps, folder, self._opener)
            entry = self._begin(self._past.ledger().with_bundle(proven.header))
        return entry, proven, folder

    def _repeated(self, success: ExportSuccess) -> Prepared:
        with self._audit.failing(success.stream):
            checkpoint = self._stored_checkpoint(success.checkpoint_id, success.checkpoint_at)
            range_ = ExportRange(success.stream, success.from_seq, success.to_seq, checkpoint)
            folder = self._state.attempt(f"{success.n}")
            proven = self._same(success.bundle_id, range_, folder)
            if success.bridge_id == self._past.bridge_id:
                entry = self._past.entry(success.n)
            else:
                entry = self._begin(self._past.ledger().with_bundle(proven.header))
        return entry, proven, folder

    def _overlapping(self, gap: ExportGap) -> tuple[ExportSuccess, ...]:
        successes = self._past.overlapping(gap.stream, gap.from_seq, gap.to_seq)
        if not successes:
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
        return successes

    def _stored_checkpoint(self, checkpoint_id: bytes, created_at: int) -> RecorderCheckpoint:
        session = self._reader.meet()
        return checkpoint_at(session, checkpoint_id, created_at)

    def _same(self, bundle_id: bytes, range_: ExportRange, folder: Path) -> Proven:
        """The bundle of that name once more; without its bodies disclosed, if it was so then."""
        proven = self._proven(range_, None, folder, self._opener)
        if proven.header.bundle_id != bundle_id:
            proven.file.unlink()
            proven = self._proven(range_, None, folder, BodyOpener((), self._reader.session.limits))
        if proven.header.bundle_id != bundle_id:
            raise RolledBack(
                f"{range_.stream} {range_.from_seq} to {range_.to_seq} does not give bundle "
                f"{bundle_id.hex()} again: the hub signed two histories (equivocation), or the "
                "reader's keys of then are missing; compare the hub with its archive"
            )
        return proven

    def _proven(
        self, range_: ExportRange, caps: Caps | None, folder: Path, opener: BodyOpener
    ) -> Proven:
        with self._watch(f"reading {range_.stream}", "events") as progress:
            header, file, unopened = build(self._reader, opener, range_, caps, folder, progress)
        proven = self._workshop.prove(header, file, self._past.roots(range_.stream))
        return replace(proven, unopened=unopened)

    def _begin(self, ledger: CarrierLedger) -> CarrierLedgerEntry:
        entry = ledger.tail[-1]
        self._audit.begin(entry)
        self._past.add_entry(entry)
        return entry

    def _carry(self, entry: CarrierLedgerEntry, proven: Proven, folder: Path) -> ExportedCarrier:
        bags = self._deliver(entry, proven.file, folder)
        done = self._audit.success(entry, proven)
        is_again = self._past.is_recorded(done)
        if not is_again:
            self._audit.finish(done)
            self._past.add_success(done)
        self._state.clear()
        return ExportedCarrier(entry=entry, bags=bags, is_again=is_again, unopened=proven.unopened)

    def _carry_heartbeat(
        self, entry: CarrierLedgerEntry, checkpoint: RecorderCheckpoint
    ) -> ExportedCarrier:
        with self._audit.failing(None, entry):
            folder = self._state.attempt(f"{entry.n}")
            file = folder / "checkpoint.cbor"
            file.write_bytes(checkpoint.encode())
        bags = self._deliver(entry, file, folder)
        self._audit.finish(self._audit.heartbeat(entry))
        self._past.add_done(entry.n)
        self._state.clear()
        return ExportedCarrier(entry=entry, bags=bags)

    def _deliver(self, entry: CarrierLedgerEntry, file: Path, folder: Path) -> tuple[Path, ...]:
        with self._audit.failing(entry.stream or None, entry):
            staged = self._workshop.carrier(file, self._past.ledger(entry.n), folder)
            with self._watch(f"writing {self._media.medium_id}", "bytes") as progress:
                return deliver(staged, self._media, progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSetup:
    """The parameters of an export run."""

    media: Media
    operator: str
    runtime: Runtime
    now_ms: Clock
    retry_policy: RetryPolicy | None = None
    streams: tuple[str, ...] = ()
    """Streams of the settings to export; all if empty."""
    workers: int = 1
    watch: Watch = no_progress_watch


def exporting(settings: BridgeSettings) -> ExportSettings:
    if settings.exporting is None:
        raise BadSettings("expected the settings of an online zone, got those of an offline zone")
    return settings.exporting


@contextmanager
def opened(settings: BridgeSettings, run: ExportSetup) -> Iterator[Exporter]:
    """An exporter with both of its identities connected to the hub."""
    with (
        open_bridge_client(
            settings.hub,
            settings.bridge,
            runtime=run.runtime,
            retry_policy=run.retry_policy,
            keys=settings.reader_keys,
        ) as reader,
        open_bridge_client(
            settings.hub, settings.audit, runtime=run.runtime, retry_policy=run.retry_policy
        ) as auditor,
    ):
        yield _exporter(settings, run, reader, auditor)


def _exporter(
    settings: BridgeSettings, run: ExportSetup, reader: Client, auditor: Client
) -> Exporter:
    expected, session = exporting(settings), reader.meet()
    signer = session.identity.id_sign
    writer = AuditWriter(
        auditor,
        ONLINE_LOG,
        origin=settings.name,
        recipient=recipient(settings.audit_reader, run.runtime.clock(), "audit.reader"),
        clock=run.now_ms,
    )
    return Exporter(
        streams=_streams(settings, run),
        caps=Caps(expected.max_bundle_bytes, expected.max_bundle_events),
        state=ExportState(expected.state),
        reader=reader,
        opener=BodyOpener(_keys(settings, reader), session.limits),
        workshop=Workshop(
            hub=session.hub,
            signer=signer,
            packing=expected.packing,
            recipient=expected.recipient,
            workers=run.workers,
            watch=run.watch,
        ),
        audit=ExportAudit(
            writer,
            bridge_id=signer.public,
            operator=run.operator,
            medium=run.media.medium_id,
        ),
        media=run.media,
        watch=run.watch,
    )


def _streams(settings: BridgeSettings, run: ExportSetup) -> tuple[str, ...]:
    for name in run.streams:
        settings.streams.route(settings.hub.hub_id, name)
    return run.streams or settings.streams.sources(settings.hub.hub_id)


def _keys(settings: BridgeSettings, reader: Client) -> tuple[bytes, ...]:
    """The keys of the zone's reader first, if it has one: most events are sealed to it."""
    others = reader_keys(settings.reader) if settings.reader else ()
    return (*others, *reader.session.identity.readers())
