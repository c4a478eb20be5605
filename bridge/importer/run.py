"""A run of the importer, from the settings of the zone to the outcome of every carrier.

Its only connections are to the hub of its own zone; whom it trusts it reads from files.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge import connect
from bridge.audit_log import ApprovalRefused, AuditPending, AuditWriter
from bridge.carrier.directory import BagPath, carrier_name
from bridge.errors import CarrierRefused, printable
from bridge.importer.checkpoints import SourceCheckpoints
from bridge.importer.commit import PLAN_NOTE
from bridge.importer.completion import Cover, Covering, cover_imports, record_imports
from bridge.importer.context import AuditOutbox, ImportContext
from bridge.importer.directory import ImportDirectory
from bridge.importer.finish import Completion, finish
from bridge.importer.importer import Importer, groups
from bridge.importer.ledger import ImportLedger
from bridge.importer.ledger_file import BadLedger
from bridge.importer.outcome import ImportOutcome, ImportState
from bridge.importer.quarantine import no_space, not_read, unsigned_on_medium
from bridge.importer.staging import (
    InsufficientSpace,
    bags_on,
    bytes_below,
    fetch,
    partial_name,
    verify_space,
)
from bridge.settings import BridgeSettings, BridgeZone, ImportSettings
from bridge.stream_map import OFFLINE_LOG
from bridge.trust import TrustStore, entered
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.keystore.card import CardExpired, read_card
from veen.system.config import BadSettings
from veen.system.environment import Runtime, Watch, no_progress_watch

LAST_PLAN: Final = "last plan"
"""The name of the last plan that was handed over when the ledger was rebuilt."""
_KEY: Final = re.compile(r"[0-9a-f]{64}\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """The request for a run.

    ``only`` are the bundles that may be imported, if not all may; ``rejected`` go to quarantine.
    ``unapproved`` are bundles whose claimed approval does not hold, for ``reason``.
    """

    operator: str
    media: Sequence[Path] = ()
    accepted: Sequence[str] = ()
    only: Sequence[str] | None = None
    rejected: Sequence[str] = ()
    unapproved: Sequence[bytes] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ImportRunResult:
    """The outcomes of a run. ``pending`` is why the audit log does not have all of it yet;
    ``unrecorded`` why the stream record/infrastructure/imports does not.
    """

    outcomes: tuple[ImportOutcome, ...]
    pending: AuditPending | None
    covering: Covering | None = None
    unrecorded: str | None = None


def run_import(
    settings: BridgeSettings,
    request: ImportRequest,
    runtime: Runtime,
    *,
    retry_policy: RetryPolicy | None = None,
    watch: Watch = no_progress_watch,
    cover: Cover | None = None,
) -> ImportRunResult:
    """Import what is in the inbox and on the media, after completing interrupted imports.

    ``cover`` makes a checkpoint over what was imported by this run or earlier runs.
    """
    with opened(settings, request, runtime, retry_policy, watch) as context:
        verify_ledger_current(context)
        outcomes: list[ImportOutcome] = []
        try:
            outcomes.extend(_work_through(context, request))
            unrecorded = record_imports(
                settings, context.ledger, context.recipient, runtime, retry_policy
            )
            covering = None if cover is None else cover_imports(context, cover)
        except AuditPending as pending:
            return ImportRunResult(tuple(outcomes), pending)
        return ImportRunResult(tuple(outcomes), None, covering, unrecorded)


@contextmanager
def opened(
    settings: BridgeSettings,
    request: ImportRequest,
    runtime: Runtime,
    retry_policy: RetryPolicy | None = None,
    watch: Watch = no_progress_watch,
) -> Iterator[ImportContext]:
    """The context of an import, with its directory locked and both identities connected."""
    expected, now = importing(settings), runtime.clock()
    import_dir = ImportDirectory(expected.state)
    with ExitStack() as stack:
        stack.enter_context(import_dir.locked())
        ledger = stack.enter_context(ImportLedger(import_dir.ledger))
        bridge, audit = (
            stack.enter_context(
                connect.open_bridge_client(
                    settings.hub,
                    identity,
                    runtime=runtime,
                    retry_policy=retry_policy,
                    sealers=min(1, expected.workers - 1),
                )
            )
            for identity in (settings.bridge, settings.audit)
        )
        recipient = reader_key(settings.audit_reader, now)
        writer = AuditWriter(
            audit, OFFLINE_LOG, origin=settings.name, recipient=recipient, clock=lambda: now * 1000
        )
        # Changes first: a concurrent change of trust is entered after its files are written.
        changes, trust = entered(settings.trust), TrustStore.read(settings.trust)
        yield ImportContext(
            import_dir=import_dir,
            ledger=ledger,
            audit_outbox=AuditOutbox(audit, writer, OFFLINE_LOG, recipient),
            bridge=bridge,
            trust=trust,
            changes=changes,
            checkpoints=SourceCheckpoints(import_dir, trust),
            streams=settings.streams,
            settings=expected,
            privates=[_private(path) for path in expected.zone_keys],
            recipient=recipient,
            operator=request.operator,
            now=now,
            random=runtime.random,
            watch=watch,
            accepted=request.accepted,
            only=request.only,
            rejected=request.rejected,
            reason=request.reason,
        )


def importing(settings: BridgeSettings) -> ImportSettings:
    if settings.zone is not BridgeZone.OFFLINE or settings.importing is None:
        raise BadSettings(
            f'expected zone = "offline", got "{settings.zone.value}": only the offline side of a '
            "bridge imports"
        )
    return settings.importing


def verify_ledger_current(context: ImportContext) -> None:
    """Raise BadLedger if the ledger does not have the last import: it was lost or restored."""
    last = context.bridge.note(PLAN_NOTE)
    if last is None or last == context.ledger.noted(LAST_PLAN):
        return
    if not context.ledger.knows_plan(last):
        raise BadLedger(
            f"{context.import_dir.ledger}: expected the last plan of this bridge, {last.hex()}, "
            "got none: the ledger is new, or was restored from an old copy; rebuild it with "
            "veen bridge import --rebuild-ledger"
        )


def reader_key(card: Path, now: int) -> bytes:
    """The key to seal to. An expired card is still used, with its newest key: a wrong clock must
    not block an import.
    """
    identity_card = read_card(card)
    try:
        return identity_card.recipient(now)
    except CardExpired:
        return identity_card.prekeys[0].prekey


def _work_through(context: ImportContext, request: ImportRequest) -> Iterator[ImportOutcome]:
    """The outcomes, until nothing is left to do or the hub does not accept a bundle."""
    for medium in request.media:
        _verify_mounted(medium)
    for outcome in _outcomes(context, request):
        yield outcome.at(context.now, context.settings.warn_age_sec)
        if outcome.state is ImportState.PARTIAL:
            return


def _outcomes(context: ImportContext, request: ImportRequest) -> Iterator[ImportOutcome]:
    """Process media batch by batch; a carrier of several bags may need all of them."""
    importer = Importer(context)
    yield from importer.recover()
    _audit_unapproved(context, request)
    yield from importer.take_held()
    bags: deque[BagPath] = deque()
    for medium in request.media:
        try:
            bags += bags_on(medium)
        except CarrierRefused as error:
            yield importer.finish(not_read(context, carrier_name(medium.name), error))
    is_all = False
    while not is_all:
        yield from _fetched(context, importer, bags)
        is_all = not bags
        for group in groups(context.import_dir.inbox):
            if is_all or group.is_whole:
                yield from importer.take(group)
                yield from importer.take_held()


def _audit_unapproved(context: ImportContext, request: ImportRequest) -> None:
    """Audit each refused approval before anything else is done."""
    events = tuple(
        ApprovalRefused(operator=request.operator, bundle_id=bundle_id, detail=request.reason)
        for bundle_id in request.unapproved
    )
    if events:
        finish(context, Completion(events=events))


def _verify_mounted(medium: Path) -> None:
    """Raise an error if a medium, or the medium of a bag, cannot be read."""
    try:
        os.scandir(BagPath.of(medium).root).close()
    except OSError as error:
        raise VeenError(
            f"{printable(str(medium))}: expected a medium that can be read, got {error.strerror}; "
            "mount it, and run this again"
        ) from error


def _fetched(
    context: ImportContext, importer: Importer, bags: deque[BagPath]
) -> Iterator[ImportOutcome]:
    """Copy a batch of bags from media into the inbox, within its quota; only bags that could not
    be copied have an outcome.
    """
    used, is_first = bytes_below(context.import_dir.inbox), True
    left = context.settings.batch_bags
    while bags and left:
        bag, left, partial = bags.popleft(), left - 1, None
        try:
            signed = importer.signed(bag)
            if used + signed.size > context.settings.max_inbox_bytes:
                if not is_first:
                    # Process what was fetched first, which frees space in the inbox.
                    bags.appendleft(bag)
                    return
                raise _inbox_full(context, used, signed.size)
            verify_space(context.settings, [signed], copies=2)
            partial = partial_name(bag, context.import_dir.inbox)
            with context.watch(f"fetching {carrier_name(bag.name)}", "bytes") as progress:
                fetch(signed, partial, progress)
            used, is_first = used + signed.size, False
        except CarrierRefused as error:
            yield importer.finish(unsigned_on_medium(context, bag, error, partial))
        except InsufficientSpace as error:
            yield importer.finish(no_space(context, carrier_name(bag.name), error))


def _inbox_full(context: ImportContext, used: int, size: int) -> InsufficientSpace:
    most = context.settings.max_inbox_bytes
    return InsufficientSpace(
        f"{context.import_dir.inbox}: expected at most {most} bytes (max_inbox_bytes), got {used} "
        f"and {size} more of this carrier; remove what is not needed there, or raise the limit, "
        "and run this again"
    )


def _private(path: Path) -> bytes:
    text = path.read_text()
    if not _KEY.fullmatch(text):
        raise BadSettings(
            f"{path}: expected a private key of 64 hex digits, got {len(text)} other characters"
        )
    return bytes.fromhex(text.strip())
