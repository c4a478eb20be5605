"""Building a bundle and its carrier on local disk, and verifying both before any medium is touched.

A bundle depends on its range of the log and its checkpoint alone (AGB0 4.4, 4.5, 4.9).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from bridge.bundle import BundleEvent, BundleSource, Header, Metadata, write_bundle
from bridge.carrier.codec import Sealing
from bridge.carrier.format import CarrierLedger, Packing
from bridge.carrier.verify import VerifyContext, check_carrier
from bridge.carrier.writer import Content, StagedCarrier, stage
from bridge.errors import CarrierFault, CarrierRefused, Level
from bridge.trust import TrustStore
from bridge.verify import HeldStream, VerifiedBundle, verify_bundle
from veen.client.client import Client
from veen.client.log_head import Pair
from veen.crypto import SigningKey
from veen.digest import h_file
from veen.errors import BadSeal, Unopenable, Untrusted, VeenError
from veen.events import NotAnEvent, read_event
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE, stream_id
from veen.limits import Limits
from veen.payload import Opened, open_with_any
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import Progress, Watch, no_progress, no_progress_watch


class RolledBack(Untrusted):
    """The hub has another history than the one that was exported."""


class Cursor(NamedTuple):
    """The last exported event of a stream and the root there; 0 and None if nothing was
    exported.
    """

    seq: int
    root: bytes | None


class NothingThere(VeenError):
    """A range without any event to export."""


@dataclass(frozen=True, slots=True)
class Caps:
    """The maximum size of a bundle; a single event may exceed ``max_bytes``."""

    max_bytes: int
    max_events: int


@dataclass(frozen=True, slots=True)
class ExportRange:
    """A range of one stream, as of a checkpoint."""

    stream: str
    from_seq: int
    to_seq: int
    checkpoint: RecorderCheckpoint


def plan(
    stream: str, cursor: Cursor, checkpoint: RecorderCheckpoint, max_events: int
) -> ExportRange | None:
    """The next range to export, of at most ``max_events``; None if there is nothing new.

    A stream that ends before the cursor, or has another root there, is RolledBack.
    """
    end = checkpoint.end(stream)
    last = end.last_seq if end else 0
    if last < cursor.seq:
        raise RolledBack(
            f"{stream} was exported up to {cursor.seq} and ends at {last} in the hub's last "
            "checkpoint: the hub was restored to an older state; stop it, and compare it with its "
            "archive"
        )
    if end is not None and last == cursor.seq and cursor.seq and end.mmr_root != cursor.root:
        raise RolledBack(
            f"{stream} has another root at {last} than the one that was exported: the hub signed "
            "two histories (equivocation); stop it, and compare it with its archive"
        )
    if last == cursor.seq:
        return None
    return ExportRange(stream, cursor.seq + 1, min(last, cursor.seq + max_events), checkpoint)


@dataclass(slots=True)
class Unopened:
    """Events that are exported sealed because they cannot be opened here.

    Most of them are sealed to another reader. ``bad`` of them no key would open; the first few are
    listed with stream_seq and reason.
    """

    NAMED: ClassVar = 5

    count: int = 0
    bad: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, stream_seq: int, error: Unopenable) -> None:
        self.count += 1
        if isinstance(error, BadSeal):
            self.bad += 1
            if len(self.first) < self.NAMED:
                self.first.append((stream_seq, str(error)))


class BodyOpener:
    """Opens bodies with any of its keys; the key that last succeeded is tried first."""

    def __init__(self, keys: Sequence[bytes], limits: Limits) -> None:
        self._keys = list(dict.fromkeys(keys))
        self._limits = limits

    def event(self, pair: Pair) -> BundleEvent:
        """An event as exported: disclosed if a key opens it, else sealed as it is."""
        return self.read(pair)[0]

    def read(self, pair: Pair) -> tuple[BundleEvent, Unopenable | None]:
        """The event as exported, and the reason if it stays sealed."""
        try:
            opened = open_with_any(self._keys, pair.msg, DEFAULT_PROFILE, self._limits)
        except Unopenable as error:
            return _bundled(pair, None), error
        return _bundled(pair, opened), None


def _bundled(pair: Pair, opened: Opened | None) -> BundleEvent:
    return BundleEvent(
        payload=pair.msg.encode(),
        metadata=_metadata(pair, opened) if opened else None,
        receipt=pair.receipt.encode(),
        body_key=opened.body_key if opened else None,
    )


def _metadata(pair: Pair, opened: Opened) -> Metadata | None:
    try:
        event = read_event(opened.header.schema, opened.body, pair.msg.client_id)
    except NotAnEvent:
        return None
    return Metadata.of(event, pair.receipt)


@dataclass(frozen=True, slots=True)
class Spooled:
    """Encoded events in a temporary file, with their sizes."""

    file: Path
    sizes: tuple[int, ...]
    first_ts: int
    last_ts: int
    unopened: Unopened

    def events(self) -> Iterator[BundleEvent]:
        with self.file.open("rb") as file:
            for size in self.sizes:
                yield BundleEvent.decode(file.read(size))


def build(
    reader: Client,
    opener: BodyOpener,
    range_: ExportRange,
    caps: Caps | None,
    folder: Path,
    progress: Progress = no_progress,
) -> tuple[Header, Path, Unopened]:
    """Write the bundle of a range below ``folder``, or of as much of it as the caps allow.

    Without caps it is the whole range, as required for a range that was already cut.
    """
    spooled = _spool(reader, opener, range_, caps, folder / "events", progress)
    last = range_.from_seq + len(spooled.sizes) - 1
    end = range_.checkpoint.end(range_.stream)
    if end is None:
        raise NothingThere(f"the checkpoint does not cover {range_.stream}; create a newer one")
    label = reader.session.labels(range_.stream, DEFAULT_PROFILE).at(0)
    proof = reader.session.api.range_proof(label, range_.from_seq, last, end.last_seq)
    header = Header(
        source_hub_id=range_.checkpoint.hub_id,
        source_profile_id=range_.checkpoint.profile_id,
        export_stream_id=stream_id(range_.stream),
        export_stream=range_.stream,
        export_seq_from=range_.from_seq,
        export_seq_to=last,
        export_time_from=spooled.first_ts,
        export_time_to=spooled.last_ts,
        export_checkpoint=range_.checkpoint,
    )
    path = folder / "bundle.cbor"
    with path.open("x+b") as file:
        named = write_bundle(file, header, spooled.events(), proof)
    spooled.file.unlink()
    return named, path, spooled.unopened


def _spool(
    reader: Client,
    opener: BodyOpener,
    range_: ExportRange,
    caps: Caps | None,
    path: Path,
    progress: Progress,
) -> Spooled:
    pairs = reader.read(range_.stream, from_seq=range_.from_seq, to_seq=range_.to_seq)
    sizes: list[int] = []
    times: list[int] = []
    count, size, unopened = range_.to_seq - range_.from_seq + 1, 0, Unopened()
    with path.open("xb") as file:
        for pair in pairs:
            event, error = opener.read(pair)
            raw = event.encode()
            size += len(raw)
            if sizes and caps is not None and size > caps.max_bytes:
                break
            if error is not None:
                unopened.add(pair.receipt.stream_seq, error)
            file.write(raw)
            sizes.append(len(raw))
            times = [*times[:1], pair.receipt.hub_ts]
            progress(len(sizes), count)
    if not sizes:
        raise NothingThere(
            f"{range_.stream} has no event {range_.from_seq}; see where it ends with "
            "veen bridge status"
        )
    return Spooled(path, tuple(sizes), times[0], times[-1], unopened)


@dataclass(frozen=True, slots=True)
class Proven:
    """A verified bundle on local disk."""

    header: Header
    file: Path
    sha256: bytes
    root: bytes
    unopened: Unopened = field(default_factory=Unopened)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Verifies bundles and builds carriers; ``recipient`` is the key they are encrypted to, if
    any.
    """

    hub: HubIdentity
    signer: SigningKey
    packing: Packing
    recipient: bytes | None
    workers: int = 1
    watch: Watch = no_progress_watch

    def prove(self, header: Header, file: Path, held: HeldStream) -> Proven:
        """Verify a bundle as the importing zone would, and that it continues what was exported
        before.
        """
        with file.open("rb") as source:
            try:
                verified = self._verified(source, header.export_stream, held)
            except CarrierRefused as error:
                if error.fault is not CarrierFault.FORK:
                    raise
                raise RolledBack(
                    f"{header.export_stream} has another past before {header.export_seq_from} "
                    "than the one that was exported: the hub signed two histories; stop it, and "
                    "compare it with its archive"
                ) from error
            source.seek(0)
            return Proven(verified.header, file, h_file(source), verified.root)

    def _verified(self, source: BundleSource, stream: str, held: HeldStream) -> VerifiedBundle:
        with self.watch(f"proving {stream}", "events") as progress:
            return verify_bundle(
                source, self._trust(), held, workers=self.workers, progress=progress
            )

    def carrier(self, file: Path, ledger: CarrierLedger, folder: Path) -> StagedCarrier:
        """Build the bags of a carrier below ``folder``, and verify what was written."""
        staging, scratch = folder / "carrier", folder / "scratch"
        staging.mkdir()
        scratch.mkdir()
        sealing = Sealing.by(self.signer, self.recipient) if self.recipient else None
        content = Content(file=file, ledger=ledger)
        staged = stage(content, self.packing, self.signer, staging, sealing, self.watch)
        context = VerifyContext(trust=self._trust(), scratch=scratch, watch=self.watch)
        report = check_carrier(staged.bags, Level.INTACT, context)
        if report.refusal is not None:
            raise report.refusal
        return staged

    def _trust(self) -> TrustStore:
        return TrustStore({self.hub.hub_id: self.hub}, {self.signer.public: "self"})
