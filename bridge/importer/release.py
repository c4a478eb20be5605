"""Release of a carrier from quarantine once its cause is fixed: verified again, and audited.

It returns to the inbox, and the next import decides about it as about a new carrier. A carrier that
is still refused, or that still cannot be imported, stays in quarantine. Evidence of two histories
of a hub stays even when its stream was unfrozen since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bridge.audit_log import BundleReleased
from bridge.carrier.bag import CARRIER
from bridge.carrier.directory import BagPath
from bridge.carrier.verify import VerifyReport, check_carrier
from bridge.errors import Level
from bridge.importer.context import ImportContext
from bridge.importer.examine import verification
from bridge.importer.finish import Completion, finish, finish_interrupted
from bridge.importer.ledger import LedgerChange
from bridge.importer.outcome import ImportState
from bridge.importer.precheck import Precheck
from bridge.importer.reason import FORK, code_of
from bridge.importer.run import ImportRequest, opened, verify_ledger_current
from bridge.settings import BridgeSettings
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.system.environment import Runtime


class NotReleased(VeenError):
    """A carrier that stays in quarantine."""


@dataclass(frozen=True, slots=True)
class Released:
    """A released carrier; ``code`` is why it was quarantined, ``inbox`` are its new names."""

    bundle_id: bytes | None
    code: str
    inbox: tuple[str, ...]


def release(
    settings: BridgeSettings,
    beginning: str,
    request: ImportRequest,
    runtime: Runtime,
    retry_policy: RetryPolicy | None = None,
) -> Released:
    """Release the carrier in quarantine whose name, a bundle_id or a hash, has a prefix."""
    with opened(settings, request, runtime, retry_policy) as context:
        verify_ledger_current(context)
        finish_interrupted(context)
        folder = _named(context, beginning)
        code = _releasable_code(folder)
        bags = _bags(folder)
        if not bags:
            raise NotReleased(
                f"{folder}: expected a carrier, got only its hashes; bring the medium again"
            )
        report = _verified(context, settings, [BagPath.of(bag) for bag in bags])
        return _moved(context, folder, bags, code, report)


def _named(context: ImportContext, beginning: str) -> Path:
    root = context.import_dir.quarantine("")
    matches = sorted(path for path in root.iterdir() if path.name.startswith(beginning))
    if len(matches) != 1:
        count = "nothing" if not matches else f"{len(matches)} carriers"
        raise NotReleased(
            f"expected one carrier in {root} whose name begins with {beginning}, got {count}; "
            "veen bridge status lists them"
        )
    return matches[0]


def _releasable_code(folder: Path) -> str:
    code = code_of(folder)
    if code is None:
        raise NotReleased(
            f"{folder}: expected a carrier and its reason.json, got none that can be read; "
            "bring the medium again"
        )
    return code


def _bags(folder: Path) -> tuple[Path, ...]:
    """The bags of a quarantined carrier; each numbered entry is a bag or a directory of bags."""
    bags = []
    for folder_of_bag in sorted(path for path in folder.iterdir() if path.is_dir()):
        inner = [path for path in sorted(folder_of_bag.iterdir()) if path.is_dir()]
        is_bag = (folder_of_bag / CARRIER).exists()
        bags += [folder_of_bag] if is_bag else inner
    return tuple(bags)


def _verified(
    context: ImportContext, settings: BridgeSettings, bags: Sequence[BagPath]
) -> VerifyReport:
    """The report of a carrier that is valid and can be imported, or NotReleased."""
    with verification(context, bags[0].name) as verify_context:
        report = check_carrier(bags, Level.VALID, verify_context)
    if report.refusal is not None:
        raise NotReleased(f"it is still refused and stays in quarantine: {report.refusal}")
    prechecked = Precheck(settings, context.bridge.session.api).of(report, bags)
    if prechecked.obstacle:
        raise NotReleased(
            f"it still cannot be imported and stays in quarantine: {prechecked.obstacle}"
        )
    return report


def _moved(
    context: ImportContext, folder: Path, bags: tuple[Path, ...], code: str, report: VerifyReport
) -> Released:
    import_dir, mark = context.import_dir, context.random(4).hex()
    bundle_id = report.bundle.survey.digest if report.bundle else None
    inbox = tuple(f"inbox/released-{mark}-{number}" for number in range(1, len(bags) + 1))
    event = BundleReleased(
        operator=context.operator, bundle_id=bundle_id, code=code, reason=context.reason
    )
    row = context.ledger.bundle(bundle_id) if bundle_id else None
    if row is not None and row.state in (ImportState.QUARANTINED.value, ImportState.REJECTED.value):
        row = replace(row, state=ImportState.RELEASED.value, detail=f"released: {context.reason}")
    else:
        row = None
    completion = Completion(
        events=(event,),
        change=LedgerChange(row=row),
        moves=tuple((import_dir.inside(bag), name) for bag, name in zip(bags, inbox, strict=True)),
        # Evidence that a hub signed two histories stays.
        removals=() if code == FORK else (import_dir.inside(folder),),
    )
    finish(context, completion)
    return Released(bundle_id, code, inbox)
