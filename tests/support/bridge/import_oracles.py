"""What must hold of the audit log after every import, whatever was done to it (O3, O6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bridge.audit_log import AuditEvent
from bridge.carrier.format import Carrier
from bridge.importer.outcome import ImportOutcome
from veen.errors import Malformed

AGAIN = ("import.duplicate", "import.heartbeat.duplicate")
ENDS = {
    "imported": ("import.success",),
    "duplicate": AGAIN,
    "heartbeat": ("import.heartbeat",),
    "waiting": ("import.waiting",),
    "blocked": ("import.blocked",),
    "frozen": ("import.blocked",),
    "rejected": ("import.blocked",),
    "quarantined": ("import.quarantined", "import.blocked", "equivocation"),
    "incomplete": ("import.failed",),
    "partial": ("import.failed",),
    "refused": ("import.failed",),
}
"""How an attempt that ended so is told of; what was told of before may be told as a duplicate."""


def verify_ends(
    audits: Sequence[Any], outcomes: Iterable[ImportOutcome], media: Iterable[Path]
) -> None:
    """O3: every attempt has an entry that says how it ended; one success for each bundle."""
    for outcome in outcomes:
        kinds = (*ENDS[outcome.state.value], *AGAIN)
        about = [audit for audit in audits if audit.KIND in kinds and _is_about(audit, outcome)]
        assert about, outcome
    ended = [audit for audit in audits if any(audit.KIND in kinds for kinds in ENDS.values())]
    named = {getattr(item, "bundle_id", None) for item in ended}
    for medium in media:
        assert _claims(medium) <= named or None in named, medium
    for number, begun in enumerate(audits):
        if begun.KIND == "import.begin":
            after = [audit for audit in audits[number:] if audit.KIND in _ENDS_OF_BEGUN]
            assert begun.bundle_id in {item.bundle_id for item in after}
    successes = Counter(audit.bundle_id for audit in audits if audit.KIND == "import.success")
    assert set(successes.values()) <= {1}


_ENDS_OF_BEGUN = ("import.success", "import.failed", "import.quarantined")


def verify_only_again(before: Sequence[AuditEvent], added: Sequence[Any]) -> None:
    """O6: what is presented once more is a duplicate, or refused for what it was refused for."""
    refusals = {_refusal(event) for event in before}
    for item in added:
        is_refused = getattr(item, "code", None) is not None
        assert item.KIND in AGAIN or (is_refused and _refusal(item) in refusals), item


def _is_about(event: Any, outcome: ImportOutcome) -> bool:
    if outcome.bundle_id is not None:
        return bool(event.bundle_id == outcome.bundle_id)
    return not outcome.code or getattr(event, "code", None) == outcome.code


def _refusal(event: AuditEvent) -> tuple[str, object, object]:
    return event.KIND, getattr(event, "sha256", None), getattr(event, "code", None)


def _claims(medium: Path) -> set[bytes]:
    """The bundles that the carriers on a medium name in the open."""
    result = set()
    for path in medium.rglob("carrier.cbor"):
        with suppress(Malformed):
            ledger = Carrier.decode(path.read_bytes()).ledger
            bundle_id = ledger.tail[-1].bundle_id if ledger else None
            result |= {bundle_id} if bundle_id else set()
    return result
