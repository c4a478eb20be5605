"""One run of an import, from the settings of the zone to what became of every carrier.

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
from bridge.errors import Refused, printable
from bridge.importer.airlock import Airlock
from bridge.importer.checkpoints import KeptCheckpoints
from bridge.importer.commit import PLAN_NOTE
from bridge.importer.context import AuditOutbox, ImportContext
from bridge.importer.finish import apply_pending, pending_actions, record_imports
from bridge.importer.importer import Importer, groups
from bridge.importer.ledger import BadLedger, ImportLedger
from bridge.importer.outcome import ImportOutcome, ImportState
from bridge.importer.quarantine import Unsigned, Verdicts
from bridge.importer.staging import (
    InsufficientSpace,
    bags_on,
    bytes_below,
    fetch,
    partial_name,
    verify_room,
)
from bridge.importer.trust_audit import Cover, Covering, cover_imports
from bridge.settings import BridgeSettings, BridgeZone, ImportSettings
from bridge.stream_map import OFFLINE_LOG
from bridge.trust import TrustStore, entered
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.keystore.card import CardExpired, read_card
from veen.system.config import BadSettings
from veen.system.environment import Runtime, Watch, no_progress_watch

LAST_PLAN: Final = "last plan"
"""The last plan that was handed over when the ledger was made again."""
_PORTION: Final = 1024
"""How many bags of media lie in the inbox at a time, beside those that it held before."""
_KEY: Final = re.compile(r"[0-9a-f]{64}\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a run is asked to do, and by whom.

    ``only`` are the bundles that may go in, where not all may; ``rejected`` go to quarantine.
    ``unapproved`` are bundles of which a claimed approval does not hold, for ``reason``.
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
    """``pending`` is why the audit log does not have all of it yet; ``unrecorded`` why the stream
    record/infrastructure/imports does not.
    """

    outcomes: tuple[ImportOutcome, ...]
    pending: AuditPending | None
    covering: Covering | None = None
    unrecorded: str | None = None


def run_import(
    settings: BridgeSettings,
    order: Order,
    runtime: Runtime,
    *,
    retry_policy: RetryPolicy | None = None,
    watch: Watch = no_progress_watch,
    cover: Cover | None = None,
) -> ImportRunResult:
    """Import what is in the inbox and on the media; first finish what was cut short.

    ``cover`` is asked for a checkpoint over what was imported, by this run or by one before it.
    """
    with opened(settings, order, runtime, retry_policy, watch) as tools:
        refuse_lost_ledger(tools)
        outcomes: list[ImportOutcome] = []
        try:
            outcomes.extend(_work_through(tools, order))
            unrecorded = record_imports(
                settings, tools.ledger, tools.recipient, runtime, retry_policy
            )
            covering = None if cover is None else cover_imports(tools, cover)
        except AuditPending as pending:
            return ImportRunResult(tuple(outcomes), pending)
        return ImportRunResult(tuple(outcomes), None, covering, unrecorded)


@contextmanager
def opened(
    settings: BridgeSettings,
    order: Order,
    runtime: Runtime,
    retry_policy: RetryPolicy | None = None,
    watch: Watch = no_progress_watch,
) -> Iterator[ImportContext]:
    """The airlock, locked, with both identities of the importer at the zone's hub."""
    expected, now = importing(settings), runtime.clock()
    airlock = Airlock(expected.state)
    with ExitStack() as closing:
        closing.enter_context(airlock.locked())
        ledger = closing.enter_context(ImportLedger(airlock.ledger))
        bridge, audit = (
            closing.enter_context(
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
        # First what was entered: whoever changes trust meanwhile enters it last.
        changes, trust = entered(settings.trust), TrustStore.read(settings.trust)
        yield ImportContext(
            airlock=airlock,
            ledger=ledger,
            audit_outbox=AuditOutbox(audit, writer, OFFLINE_LOG, recipient),
            bridge=bridge,
            trust=trust,
            changes=changes,
            checkpoints=KeptCheckpoints(airlock, trust),
            streams=settings.streams,
            settings=expected,
            privates=[_private(path) for path in expected.zone_keys],
            recipient=recipient,
            operator=order.operator,
            now=now,
            random=runtime.random,
            watch=watch,
            accepted=order.accepted,
            only=order.only,
            rejected=order.rejected,
            reason=order.reason,
        )


def importing(settings: BridgeSettings) -> ImportSettings:
    if settings.zone is not BridgeZone.OFFLINE or settings.importing is None:
        raise BadSettings('zone = "online": only the offline side of a bridge imports')
    return settings.importing


def refuse_lost_ledger(tools: ImportContext) -> None:
    """A ledger that does not know the last import is lost, or older than what it tells of."""
    last = tools.bridge.note(PLAN_NOTE)
    if last is None or last == tools.ledger.reported(LAST_PLAN):
        return
    if not tools.ledger.knows_plan(last):
        raise BadLedger(
            f"{tools.airlock.ledger} does not know the last import of this bridge: it is new, or "
            "was restored from an old copy; make it again with veen bridge import --rebuild-ledger"
        )


def reader_key(card: Path, now: int) -> bytes:
    """The key to seal to. A card that has expired by this clock still serves: a wrong clock must
    not keep anything out, and the newest key on it is the best there is.
    """
    identity_card = read_card(card)
    try:
        return identity_card.recipient(now)
    except CardExpired:
        return identity_card.prekeys[0].prekey


def _work_through(tools: ImportContext, order: Order) -> Iterator[ImportOutcome]:
    """Until nothing is left to do, or the hub does not take a bundle."""
    for medium in order.media:
        _verify_mounted(medium)
    for outcome in _outcomes(tools, order):
        yield outcome.at(tools.now, tools.settings.warn_age_sec)
        if outcome.state is ImportState.PARTIAL:
            return


def _outcomes(tools: ImportContext, order: Order) -> Iterator[ImportOutcome]:
    """Media are taken in a portion at a time; a carrier of several bags can need them all."""
    importer = Importer(tools)
    yield from importer.recover()
    _audit_unapproved(tools, order)
    yield from importer.take_held()
    bags: deque[BagPath] = deque()
    for medium in order.media:
        try:
            bags += bags_on(medium)
        except Refused as error:
            yield Verdicts(tools).unread(carrier_name(medium.name), error)
    is_all = False
    while not is_all:
        yield from _fetched(tools, importer, bags)
        is_all = not bags
        for group in groups(tools.airlock.inbox):
            if is_all or group.is_whole:
                yield from importer.take(group)
                yield from importer.take_held()


def _audit_unapproved(tools: ImportContext, order: Order) -> None:
    """Each refused approval is in the audit log before anything else is done."""
    events = [
        ApprovalRefused(operator=order.operator, bundle_id=item, detail=order.reason)
        for item in order.unapproved
    ]
    if events:
        closing = pending_actions(tools, events)
        tools.ledger.conclude(None, closing)
        apply_pending(tools, closing)


def _verify_mounted(medium: Path) -> None:
    """Of a bag its medium; the bag itself is judged like all others."""
    try:
        os.scandir(BagPath.of(medium).root).close()
    except OSError as error:
        raise VeenError(
            f"{printable(str(medium))} cannot be read: {error.strerror}; is it mounted?"
        ) from error


def _fetched(
    tools: ImportContext, importer: Importer, bags: deque[BagPath]
) -> Iterator[ImportOutcome]:
    """Copy bags of media into the inbox, a portion of them and no more than its quota allows; only
    what could not be copied is an outcome.
    """
    verdicts, used, most = Verdicts(tools), bytes_below(tools.airlock.inbox), _PORTION
    is_first = True
    while bags and most:
        bag, most, partial = bags.popleft(), most - 1, None
        try:
            signed = importer.signed(bag)
            if used + signed.size > tools.settings.max_inbox_bytes:
                if not is_first:
                    # What was fetched leaves the inbox first, and makes room.
                    bags.appendleft(bag)
                    return
                raise _inbox_full(tools, used, signed.size)
            verify_room(tools.settings, [signed], copies=2)
            partial = partial_name(bag, tools.airlock.inbox)
            with tools.watch(f"fetching {carrier_name(bag.name)}", "bytes") as progress:
                fetch(signed, partial, progress)
            used, is_first = used + signed.size, False
        except Refused as error:
            yield Unsigned(tools).on_medium(bag, error, partial)
        except InsufficientSpace as error:
            yield verdicts.no_room(carrier_name(bag.name), error)


def _inbox_full(tools: ImportContext, used: int, size: int) -> InsufficientSpace:
    most = tools.settings.max_inbox_bytes
    return InsufficientSpace(
        f"it takes {size} bytes in {tools.airlock.inbox}, which holds {used} of at most {most} "
        "bytes (max_inbox_bytes); take out what is not needed there, or allow more, and run this "
        "again"
    )


def _private(path: Path) -> bytes:
    text = path.read_text()
    if not _KEY.fullmatch(text):
        raise BadSettings(f"{path} is to hold a private key of 64 hex digits")
    return bytes.fromhex(text.strip())
