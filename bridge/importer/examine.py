"""Verification of a carrier while it is open, so that what was verified is what is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bridge.bundle import TAG, BundleEvent, array_head, read_batch
from bridge.carrier.format import CarrierLedger
from bridge.carrier.reader import CarrierSet, unpacked
from bridge.carrier.reader import ContentSpan as Content
from bridge.carrier.verify import VerifyContext, VerifyReport, verify_cargo
from bridge.errors import CarrierFault, CarrierRefused, Level
from bridge.importer.context import ImportContext
from bridge.verify import VerifiedBundle
from veen.digest import Hasher, h_blocks
from veen.errors import Malformed
from veen.receipt import Receipt
from veen.system import durable
from veen.system.environment import Progress, Watch
from veen.wire import cbor


@dataclass(frozen=True, slots=True)
class ExaminedCarrier:
    """A valid carrier, and its content while it is open."""

    report: VerifyReport
    ledger: CarrierLedger
    content: Content


@dataclass(frozen=True, slots=True)
class LoadedBundle:
    """The events of a bundle in memory, which match its bundle_id."""

    events: tuple[BundleEvent, ...]
    receipts: tuple[Receipt, ...]
    entries: bytes
    """The leaf hash and the root of each event."""
    sha256: bytes
    """Of the bundle's bytes."""


@contextmanager
def verification(context: ImportContext, name: str) -> Iterator[VerifyContext]:
    """The context for verifying the carrier of that name, with a scratch directory that is removed
    afterwards.
    """
    scratch = context.import_dir.staging / f"{context.random(8).hex()}-work"
    scratch.mkdir(mode=durable.DIR_MODE)
    try:
        yield VerifyContext(
            trust=context.trust,
            scratch=scratch,
            privates=context.privates,
            limits=context.settings.limits,
            workers=context.settings.workers,
            watch=context.watch_of(name),
            now=context.now,
        )
    finally:
        context.import_dir.remove(context.import_dir.inside(scratch))


@contextmanager
def examined(
    bags: Sequence[Path], verify_context: VerifyContext, report: VerifyReport | None = None
) -> Iterator[ExaminedCarrier]:
    """Verify a carrier in the order of ``check_carrier``; CarrierRefused at the first fault.

    ``report`` then has what was known by that time; its ledger only if the signature holds.
    """
    report = report or VerifyReport(asked=Level.VALID)
    with CarrierSet(bags) as carrier_set:
        report.carrier = carrier_set.carrier
        report.signer = carrier_set.verify_signatures(verify_context.trust)
        report.ledger = carrier_set.carrier.ledger
        carrier_set.verify_complete()
        carrier_set.verify_intact(verify_context.watch)
        stored = carrier_set.stored(verify_context.scratch, verify_context.watch)
        most = verify_context.limits.max_bytes
        with unpacked(
            carrier_set.carrier,
            stored,
            verify_context.privates,
            verify_context.scratch,
            most,
            verify_context.watch,
        ) as cargo:
            report.ledger = cargo.ledger
            verify_cargo(cargo, verify_context, report)
            report.held += Level
            report.notes += carrier_set.notes
            yield ExaminedCarrier(report, cargo.ledger, cargo.content)


def load(content: Content, verified: VerifiedBundle, watch: Watch) -> LoadedBundle:
    """Read the events of a verified bundle into memory.

    They are hashed while they are read: a file that changed since it was verified is refused.
    """
    try:
        with watch("reading", "events") as progress:
            return _load(content, verified, progress)
    except (Malformed, CarrierRefused) as error:
        raise _changed() from error


def _load(content: Content, verified: VerifiedBundle, progress: Progress) -> LoadedBundle:
    survey = verified.survey
    digest = Hasher.tagged(TAG)
    digest.update(survey.header.unnamed())
    digest.update(array_head(survey.header.count))
    events: list[BundleEvent] = []
    end = survey.size - len(survey.proof.encode())
    for batch in survey.batches:
        raw = read_batch(content, batch)
        digest.update(raw)
        events += map(BundleEvent.decode, cbor.decode_sequence(raw))
        progress(len(events), survey.header.count)
    content.seek(end)
    digest.update(content.read(survey.size - end))
    if digest.digest() != survey.header.bundle_id:
        raise _changed()
    receipts = tuple(Receipt.decode(event.receipt) for event in events)
    entries = b"".join(receipt.leaf_hash + receipt.mmr_root for receipt in receipts)
    return LoadedBundle(tuple(events), receipts, entries, h_blocks(content.blocks()))


def _changed() -> CarrierRefused:
    return CarrierRefused(
        CarrierFault.BUNDLE_ID,
        "expected the bundle that was verified, got another content; bring the medium again",
    )
