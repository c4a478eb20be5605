"""Verification of a carrier to one of three levels, with a report and a transcript (AGB0 4.5).

The same verification at the same time gives the same text. The age of a checkpoint is reported for
people and their policies; by itself it refuses nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bridge.bundle import BundleLimits
from bridge.carrier.directory import BagPath
from bridge.carrier.format import FORMAT, TOOL, Carrier, CarrierLedger
from bridge.carrier.reader import Cargo, CarrierSet, unpacked
from bridge.errors import CarrierFault, CarrierRefused, Level, printable
from bridge.trust import TrustStore
from bridge.verify import HeldStream, VerifiedBundle, trusted_hub, verify_bundle, verify_checkpoint
from veen.errors import Malformed
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import Watch, no_progress_watch
from veen.timestamp import readable_time

_UNITS: Final = ((86_400, "day"), (3_600, "hour"))
_MAX_CHECKPOINT = 1 << 20
UNREADABLE: Final = (errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOMEDIUM, errno.ESTALE)
"""Errors of a medium rather than of a local disk: they say nothing about other carriers."""
_LINE = 4000
_MEANING = {
    Level.COMPLETE: "every volume is there, or parity makes it good",
    Level.INTACT: "every byte is as the exporter wrote it",
    Level.VALID: "signatures, proofs and events hold",
}


def time_text(seconds: int) -> str:
    """A duration in its largest unit, rounded down: 3 days."""
    for size, unit in _UNITS:
        count = seconds // size
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "less than an hour"


def age_text(seconds: int) -> str:
    if seconds < 0:
        return f"{time_text(-seconds)} ahead of this clock"
    return f"{time_text(seconds)} old"


def too_old(age_sec: int | None, most_sec: int | None) -> str:
    """The text about a checkpoint that is older than a policy allows; empty for any other."""
    if age_sec is None or most_sec is None or age_sec <= most_sec:
        return ""
    return f"its checkpoint is {age_text(age_sec)}, more than {time_text(most_sec)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyContext:
    """The inputs of a verification. ``scratch`` is a private directory with space for the
    content.
    """

    trust: TrustStore
    scratch: Path
    privates: Sequence[bytes] = field(default=(), repr=False)
    """Private keys of this zone, for carriers that are encrypted to it."""
    held: HeldStream | None = None
    limits: BundleLimits = field(default_factory=BundleLimits)
    workers: int = 1
    watch: Watch = no_progress_watch
    """Gets the progress of each step on a carrier, including its events."""
    now: int | None = None
    """When the carrier is verified, in seconds; required to know the age of a checkpoint."""
    max_age_sec: int | None = None
    """A carrier with an older checkpoint is refused."""


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    """The level that was asked for, the levels that hold, and the first fault."""

    asked: Level
    held: list[Level] = field(default_factory=list)
    refusal: CarrierRefused | None = None
    notes: list[str] = field(default_factory=list)
    carrier: Carrier | None = None
    signer: str | None = None
    ledger: CarrierLedger | None = None
    bundle: VerifiedBundle | None = None
    heartbeat: RecorderCheckpoint | None = None
    hub: HubIdentity | None = None
    """The identity that the hub's signatures were verified with."""
    now: int | None = None
    """When it was verified, in seconds."""

    @property
    def checkpoint(self) -> RecorderCheckpoint | None:
        """The checkpoint that the carrier brings."""
        return self.bundle.header.export_checkpoint if self.bundle else self.heartbeat

    @property
    def age_sec(self) -> int | None:
        """The age of the checkpoint when it was verified; below 0 if the clocks disagree."""
        if self.now is None or self.checkpoint is None:
            return None
        return self.now - self.checkpoint.created_at

    @property
    def ok(self) -> bool:
        return self.refusal is None

    @property
    def verdict(self) -> str:
        """The result for programs: the level that holds, or the code and name of the fault."""
        if self.refusal is None:
            return self.asked.value
        return f"{self.refusal.fault.code.value}/{self.refusal.fault.detail_enum}"


def check_carrier(
    bags: Sequence[Path | BagPath], level: Level, context: VerifyContext
) -> VerifyReport:
    """Verify the bags of one carrier; nothing is written except below ``scratch``."""
    report = VerifyReport(asked=level, now=context.now)
    try:
        with CarrierSet(bags) as carrier_set:
            try:
                _check(carrier_set, context, report)
            finally:
                report.notes += carrier_set.notes
    except CarrierRefused as error:
        report.refusal = error
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        report.refusal = CarrierRefused(CarrierFault.MEDIUM, f"it cannot be read: {error.strerror}")
    return report


def _check(carrier_set: CarrierSet, context: VerifyContext, report: VerifyReport) -> None:
    report.carrier, report.ledger = carrier_set.carrier, carrier_set.carrier.ledger
    if report.asked is Level.VALID:
        # Cheap; an unknown signer gets no further work done.
        report.signer = carrier_set.verify_signatures(context.trust)
    carrier_set.verify_complete()
    report.held.append(Level.COMPLETE)
    if report.asked is Level.COMPLETE:
        return
    carrier_set.verify_intact(context.watch)
    report.held.append(Level.INTACT)
    if report.asked is Level.VALID:
        stored = carrier_set.stored(context.scratch, context.watch)
        most = context.limits.max_bytes
        with unpacked(
            carrier_set.carrier, stored, context.privates, context.scratch, most, context.watch
        ) as cargo:
            report.ledger = cargo.ledger
            verify_cargo(cargo, context, report)
        report.held.append(Level.VALID)


def verify_cargo(cargo: Cargo, context: VerifyContext, report: VerifyReport) -> None:
    """Verify the bundle or the heartbeat, which must match the ledger's last entry."""
    entry, report.now = cargo.ledger.tail[-1], context.now
    if entry.bundle_id is None:
        report.heartbeat = _verify_heartbeat(cargo, context.trust)
        is_entered = entry.is_of_heartbeat(report.heartbeat)
    else:
        report.bundle = _verify_bundle(cargo, context)
        is_entered = entry.is_of_bundle(report.bundle.header)
    if not is_entered:
        raise CarrierRefused(
            CarrierFault.LEDGER, "the last entry of the ledger does not match the bundle"
        )
    report.hub = context.trust.hubs.get(entry.hub_id)
    _verify_age(report, context)


def _verify_bundle(cargo: Cargo, context: VerifyContext) -> VerifiedBundle:
    with context.watch("verifying", "events") as progress:
        return verify_bundle(
            cargo.content,
            context.trust,
            context.held,
            limits=context.limits,
            workers=context.workers,
            progress=progress,
        )


def _verify_age(report: VerifyReport, context: VerifyContext) -> None:
    """Refuse a checkpoint that is older than the policy allows; without a policy none expires."""
    detail = too_old(report.age_sec, context.max_age_sec)
    if detail:
        raise CarrierRefused(CarrierFault.AGE, detail)


def _verify_heartbeat(cargo: Cargo, trust: TrustStore) -> RecorderCheckpoint:
    raw = cargo.content.part(0, _MAX_CHECKPOINT + 1).read()
    try:
        checkpoint = RecorderCheckpoint.decode(raw)
    except Malformed as error:
        raise CarrierRefused(CarrierFault.FRAMING, f"the heartbeat: {error}") from error
    verify_checkpoint(checkpoint, trusted_hub(checkpoint.hub_id, trust))
    return checkpoint


def transcript(report: VerifyReport) -> str:
    """Plain text, a fact on each line, without control characters from a medium."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: VerifyReport) -> Iterator[str]:
    yield "Check of an AGB0 carrier"
    yield f"checked by   {TOOL}, which reads format {FORMAT}"
    yield f"asked        {report.asked.value}"
    yield f"verdict      {'accepted' if report.ok else 'REFUSED'} ({report.verdict})"
    if report.refusal is not None:
        yield f"reason       {printable(str(report.refusal), _LINE)}"
    for level in Level:
        yield f"{level.value:<12} {_state(report, level)}: {_MEANING[level]}"
    if report.carrier is not None:
        carrier = report.carrier
        yield f"set          {carrier.set_id.hex()}"
        yield f"volumes      {carrier.data} data, {carrier.parity} parity, {carrier.bags} media"
        yield f"made by      {printable(carrier.tool)}, in format {carrier.ver}"
    if report.signer is not None:
        yield f"signed by    {printable(report.signer)}"
    if report.ledger is not None:
        yield from _ledger(report.ledger)
    if report.bundle is not None:
        yield from _bundle(report.bundle)
    if report.heartbeat is not None:
        yield f"heartbeat    checkpoint {report.heartbeat.checkpoint_id.hex()}"
    yield from _times(report)
    yield from (f"note         {printable(note, _LINE)}" for note in report.notes)


def _times(report: VerifyReport) -> Iterator[str]:
    if report.hub is not None:
        since = _date(report.hub.current.valid_from)
        yield f"identity     {report.hub.number} of the hub, the newest known here, since {since}"
    if report.now is not None:
        yield f"checked at   {_date(report.now)}"
    if report.age_sec is not None:
        yield f"age          checkpoint is {age_text(report.age_sec)}"


def _state(report: VerifyReport, level: Level) -> str:
    if level in report.held:
        return "holds"
    if report.refusal is not None and report.refusal.fault.level is level:
        return "DOES NOT HOLD"
    return "not tested"


def _date(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _ledger(ledger: CarrierLedger) -> Iterator[str]:
    entry = ledger.tail[-1]
    yield f"bridge       {ledger.bridge_id.hex()}"
    yield f"ledger       entry {entry.n}, hash {entry.entry_hash().hex()}"
    if entry.bundle_id is not None:
        yield f"bundle       {entry.bundle_id.hex()}"
        yield f"hub          {entry.hub_id.hex()}"
        yield f"stream       {printable(entry.stream)}"
        yield f"events       {entry.from_seq} to {entry.to_seq}"


def _bundle(bundle: VerifiedBundle) -> Iterator[str]:
    checkpoint = bundle.header.export_checkpoint
    made_at = readable_time(checkpoint.created_at)
    yield f"checkpoint   {checkpoint.checkpoint_id.hex()} of hub time {made_at}"
    yield f"joins        {bundle.continuity.value}"
    yield f"root         {bundle.root.hex()} at {bundle.header.export_seq_to}"
    yield (
        f"metadata     {bundle.with_metadata} disclosed, "
        f"{bundle.unopened} of them not checked against the body"
    )
