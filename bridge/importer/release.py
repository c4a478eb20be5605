"""Taking a carrier out of quarantine once its cause is mended: verified anew, and audited.

It goes back to the inbox, and the next import decides about it as about one that has just come. One
that is still refused, or that still cannot go in, stays where it is. Of one that showed two
histories of a hub, which was thawed since, the evidence stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.audit_log import BundleReleased
from bridge.carrier.bag import CARRIER
from bridge.carrier.directory import BagPath
from bridge.carrier.verify import VerifyContext, VerifyReport, check_carrier
from bridge.errors import Level
from bridge.importer.airlock import FORK, code_of
from bridge.importer.context import ImportContext
from bridge.importer.finish import apply_pending, pending_actions
from bridge.importer.outcome import ImportState
from bridge.importer.precheck import Precheck
from bridge.importer.run import Order, opened, refuse_lost_ledger
from bridge.settings import BridgeSettings
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.system import durable
from veen.system.environment import Runtime


class NotReleased(VeenError):
    """A carrier that stays in quarantine, and why."""


@dataclass(frozen=True, slots=True)
class Released:
    """``code`` is why it was in quarantine; ``inbox`` are the names it has now."""

    bundle_id: bytes | None
    code: str
    inbox: tuple[str, ...]


def release(
    settings: BridgeSettings,
    beginning: str,
    order: Order,
    runtime: Runtime,
    retry_policy: RetryPolicy | None = None,
) -> Released:
    """``beginning`` is that of a name in quarantine: a bundle_id, or the hash of a carrier."""
    with opened(settings, order, runtime, retry_policy) as tools:
        refuse_lost_ledger(tools)
        tools.audit_outbox.settle()
        for closing in tools.ledger.closings():
            apply_pending(tools, closing)
        folder = _named(tools, beginning)
        code = _releasable_code(folder)
        bags = _bags(folder)
        if not bags:
            raise NotReleased(f"of {folder} only hashes were kept; bring the medium again")
        report = _verified(tools, settings, [BagPath.of(bag) for bag in bags])
        return _moved(tools, folder, bags, code, report)


def _named(tools: ImportContext, beginning: str) -> Path:
    root = tools.airlock.quarantine("")
    result = sorted(path for path in root.iterdir() if path.name.startswith(beginning))
    if len(result) != 1:
        count = "nothing" if not result else f"{len(result)} carriers"
        raise NotReleased(
            f"expected one carrier in {root} whose name begins with {beginning}, got {count}; "
            "veen bridge status lists them"
        )
    return result[0]


def _releasable_code(folder: Path) -> str:
    code = code_of(folder)
    if code is None:
        raise NotReleased(
            f"{folder} holds no carrier, or no readable reason.json; bring the medium again"
        )
    return code


def _bags(folder: Path) -> tuple[Path, ...]:
    """As they came, each under a number; one that had waited is a folder of bags."""
    result = []
    for item in sorted(path for path in folder.iterdir() if path.is_dir()):
        inner = [path for path in sorted(item.iterdir()) if path.is_dir()]
        is_bag = (item / CARRIER).exists()
        result += [item] if is_bag else inner
    return tuple(result)


def _verified(
    tools: ImportContext, settings: BridgeSettings, bags: Sequence[BagPath]
) -> VerifyReport:
    """The report of a carrier that is valid and can go in, or NotReleased."""
    with _scratch(tools) as scratch:
        means = VerifyContext(
            trust=tools.trust,
            scratch=scratch,
            privates=tools.privates,
            limits=tools.settings.limits,
            workers=tools.settings.workers,
            now=tools.now,
        )
        report = check_carrier(bags, Level.VALID, means)
    if report.refusal is not None:
        raise NotReleased(f"it is still refused and stays in quarantine: {report.refusal}")
    result = Precheck(settings, tools.bridge.session.api).of(report, bags)
    if result.obstacle:
        raise NotReleased(f"it still cannot go in and stays in quarantine: {result.obstacle}")
    return report


@contextmanager
def _scratch(tools: ImportContext) -> Iterator[Path]:
    place = tools.airlock.staging / f"{tools.random(8).hex()}-release"
    place.mkdir(mode=durable.DIR_MODE)
    try:
        yield place
    finally:
        tools.airlock.remove(tools.airlock.inside(place))


def _moved(
    tools: ImportContext, folder: Path, bags: tuple[Path, ...], code: str, report: VerifyReport
) -> Released:
    airlock, mark = tools.airlock, tools.random(4).hex()
    bundle_id = report.bundle.survey.digest if report.bundle else None
    inbox = tuple(f"inbox/released-{mark}-{number}" for number in range(1, len(bags) + 1))
    event = BundleReleased(
        operator=tools.operator, bundle_id=bundle_id, code=code, reason=tools.reason
    )
    closing = pending_actions(
        tools,
        [event],
        moves=tuple((airlock.inside(bag), name) for bag, name in zip(bags, inbox, strict=True)),
        # The evidence that a hub signed two histories stays, whatever becomes of the carrier.
        removals=() if code == FORK else (airlock.inside(folder),),
    )
    row = tools.ledger.bundle(bundle_id) if bundle_id else None
    if row is not None and row.state in (ImportState.QUARANTINED.value, ImportState.REJECTED.value):
        row = replace(row, state=ImportState.RELEASED.value, detail=f"released: {tools.reason}")
    else:
        row = None
    tools.ledger.conclude(row, closing)
    apply_pending(tools, closing)
    return Released(bundle_id, code, inbox)
