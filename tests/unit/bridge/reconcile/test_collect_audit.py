"""What an entry of the importer's log makes of a bundle: who waits, and who is in quarantine."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.audit_log import (
    HELD,
    REFUSED,
    REJECTED,
    AuditEvent,
    ImportBlocked,
    ImportQuarantined,
    ImportSuccess,
    ImportWaiting,
    RecordedEntry,
)
from bridge.reconcile.collect_logs import offline_facts
from bridge.reconcile.facts import BundleFact, ReconcileFacts, Repeat
from bridge.reconcile.ranges import Ranges
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.report import Class
from support.bridge.reconcile_histories import named

BUNDLE: dict[str, Any] = {
    "operator": "test", "bundle_id": named("bundle"), "source_hub_id": named("hub"),
    "stream": "export/a", "from_seq": 1, "to_seq": 3,
}  # fmt: skip
WHOLE: dict[str, Any] = {**BUNDLE, "sha256": named("bytes"), "count": 3}


def blocked(by: str, decision: str) -> ImportBlocked:
    return ImportBlocked(**WHOLE, by=by, detail="why", decision=decision)


def refused(**more: Any) -> ImportQuarantined:
    return ImportQuarantined(**BUNDLE, code="E.SIG/VOLUME", detail="damaged", **more)


def class_after(*events: AuditEvent) -> Class:
    facts = list(offline_facts(RecordedEntry(n, 1, event) for n, event in enumerate(events, 1)))
    assert not [fact for fact in facts if isinstance(fact, Repeat)]
    bundle_facts = [fact for fact in facts if isinstance(fact, BundleFact)]
    (stream,) = reconcile(ReconcileFacts(bundle_facts=bundle_facts)).streams
    (result,) = (kind for kind, spans in stream.classes.items() if spans)
    assert stream.classes[result] == Ranges([(1, 3)])
    return result


WAITS = ImportWaiting(**WHOLE, gap_from=1, gap_to=1)
SUCCESS = ImportSuccess(
    **WHOLE, target="import/a", target_from=1, target_to=3, imported=3, duplicates=0, excluded=0,
    verification_result="valid",
)  # fmt: skip


@pytest.mark.parametrize(
    ("events", "due"),
    [
        pytest.param([blocked("approvals", HELD)], Class.WAITING, id="approvals are due"),
        pytest.param([blocked("frozen", HELD)], Class.WAITING, id="frozen"),
        pytest.param([blocked("approvals", REJECTED)], Class.QUARANTINED, id="people said no"),
        pytest.param([blocked("operator", REJECTED)], Class.QUARANTINED, id="an operator said no"),
        pytest.param([blocked("scan", REFUSED)], Class.QUARANTINED, id="the scan said no"),
        pytest.param([blocked("scan", HELD)], Class.QUARANTINED, id="a scan of an older version"),
        pytest.param([WAITS, blocked("operator", REJECTED)], Class.QUARANTINED, id="waited first"),
        pytest.param([refused(is_claimed=True)], Class.QUARANTINED, id="a damaged carrier"),
        pytest.param([WAITS, refused(is_claimed=True)], Class.WAITING, id="a damaged copy"),
        pytest.param([WAITS, refused()], Class.QUARANTINED, id="the bundle itself does not hold"),
        pytest.param([SUCCESS, refused()], Class.MISSING, id="a success stays, and is missed"),
    ],
)
def test_each_bundle_is_in_the_class_that_its_entries_leave_it_in(
    events: list[AuditEvent], due: Class
) -> None:
    assert class_after(*events) is due
