"""The check of a carrier to one of three levels, and a report of what was found (AGB0 4.5)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bridge.bundle import BundleLimits
from bridge.carrier.age import too_old
from bridge.carrier.bag_path import BagPath
from bridge.carrier.carrier import Carrier
from bridge.carrier.ledger import Ledger
from bridge.carrier.open_set import CarrierSet
from bridge.carrier.unpack import Cargo, unpacked
from bridge.carrier.watch import Watch, unwatched
from bridge.continuity import Held
from bridge.refusal import Fault, Level, Refused
from bridge.trust import TrustStore
from bridge.verify import Verified, trusted_hub, verify_bundle, verify_checkpoint
from veen.errors import Malformed
from veen.hub_identity import HubIdentity
from veen.recorder_checkpoint import RecorderCheckpoint

_MAX_CHECKPOINT = 1 << 20
UNREADABLE: Final = (errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENOMEDIUM, errno.ESTALE)
"""Errors of a medium, and of no disk of ours: they say nothing about other carriers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a check is made with. ``scratch`` is a private directory with room for the content."""

    trust: TrustStore
    scratch: Path
    privates: Sequence[bytes] = field(default=(), repr=False)
    """Keys of this zone, for carriers that are sealed to it."""
    held: Held | None = None
    limits: BundleLimits = field(default_factory=BundleLimits)
    workers: int = 1
    watch: Watch = unwatched
    """Sees each part of the work on a carrier, that of the events among them."""
    now: int | None = None
    """When the check is made, in seconds; how old a checkpoint is can be told only with it."""
    max_age_sec: int | None = None
    """What carries an older checkpoint is refused."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What was asked, what held, and the first thing that did not."""

    asked: Level
    held: list[Level] = field(default_factory=list)
    refusal: Refused | None = None
    notes: list[str] = field(default_factory=list)
    carrier: Carrier | None = None
    signer: str | None = None
    ledger: Ledger | None = None
    bundle: Verified | None = None
    heartbeat: RecorderCheckpoint | None = None
    hub: HubIdentity | None = None
    """The identity by which the hub's signatures were verified."""
    now: int | None = None
    """When it was checked, in seconds."""

    @property
    def checkpoint(self) -> RecorderCheckpoint | None:
        """How far the source says that it had come."""
        return self.bundle.header.export_checkpoint if self.bundle else self.heartbeat

    @property
    def age_sec(self) -> int | None:
        """How old the checkpoint was at the check; below 0 if the clocks disagree."""
        if self.now is None or self.checkpoint is None:
            return None
        return self.now - self.checkpoint.created_at

    @property
    def ok(self) -> bool:
        return self.refusal is None

    @property
    def verdict(self) -> str:
        """One word for programs: the level that held, or the code and name of the fault."""
        if self.refusal is None:
            return self.asked.value
        return f"{self.refusal.fault.code.value}/{self.refusal.fault.detail_enum}"


def check_carrier(bags: Sequence[Path | BagPath], level: Level, means: Means) -> Report:
    """Check the bags of one carrier; nothing is written but below ``scratch``."""
    report = Report(asked=level, now=means.now)
    try:
        with CarrierSet(bags) as found:
            try:
                _check(found, means, report)
            finally:
                report.notes += found.notes
    except Refused as error:
        report.refusal = error
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        report.refusal = Refused(Fault.MEDIUM, f"it cannot be read: {error.strerror}")
    return report


def _check(found: CarrierSet, means: Means, report: Report) -> None:
    report.carrier, report.ledger = found.carrier, found.carrier.ledger
    if report.asked is Level.VALID:
        # Cheap, and nothing more is done for whoever is not known.
        report.signer = found.verify_signatures(means.trust)
    found.verify_complete()
    report.held.append(Level.COMPLETE)
    if report.asked is Level.COMPLETE:
        return
    found.verify_intact(means.watch)
    report.held.append(Level.INTACT)
    if report.asked is Level.VALID:
        stored = found.stored(means.scratch, means.watch)
        most = means.limits.max_bytes
        with unpacked(
            found.carrier, stored, means.privates, means.scratch, most, means.watch
        ) as cargo:
            report.ledger = cargo.ledger
            verify_cargo(cargo, means, report)
        report.held.append(Level.VALID)


def verify_cargo(cargo: Cargo, means: Means, report: Report) -> None:
    """The bundle or the heartbeat, which must be what the ledger's last entry says."""
    entry, report.now = cargo.ledger.tail[-1], means.now
    if entry.bundle_id is None:
        report.heartbeat = _verify_heartbeat(cargo, means.trust)
        is_entered = entry.is_of_heartbeat(report.heartbeat)
    else:
        report.bundle = _verify_bundle(cargo, means)
        is_entered = entry.is_of_bundle(report.bundle.header)
    if not is_entered:
        raise Refused(Fault.LEDGER, "the ledger enters something else than what is carried")
    report.hub = means.trust.hubs.get(entry.hub_id)
    _verify_age(report, means)


def _verify_bundle(cargo: Cargo, means: Means) -> Verified:
    with means.watch("verifying", "events") as progress:
        return verify_bundle(
            cargo.content,
            means.trust,
            means.held,
            limits=means.limits,
            workers=means.workers,
            progress=progress,
        )


def _verify_age(report: Report, means: Means) -> None:
    """Age is a matter of policy, never of truth: without one nothing expires."""
    told = too_old(report.age_sec, means.max_age_sec)
    if told:
        raise Refused(Fault.AGE, told)


def _verify_heartbeat(cargo: Cargo, trust: TrustStore) -> RecorderCheckpoint:
    raw = cargo.content.part(0, _MAX_CHECKPOINT + 1).read()
    try:
        found = RecorderCheckpoint.decode(raw)
    except Malformed as error:
        raise Refused(Fault.FRAMING, f"the heartbeat: {error}") from error
    verify_checkpoint(found, trusted_hub(found.hub_id, trust))
    return found
