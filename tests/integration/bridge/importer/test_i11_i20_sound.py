"""Bundles that are sound: once, in part, and with a hub or an audit log that does not take
them (I11, I12, I15, I19, I20).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bridge.importer.ledger import ImportLedger
from bridge.importer.status import import_status
from support.client.man_in_the_middle import Middle
from support.client.refusing_plan import TakesOnly
from veen.keystore.directory import ClientDir
from veen.wire.api import ErrorEnvelope


def test_i11_a_bundle_once_more_is_a_duplicate_and_writes_nothing(import_zone: Any) -> None:
    medium = import_zone.medium(1, 4)
    assert import_zone.states(medium) == ["imported"]
    assert import_zone.states(medium) == ["duplicate"]
    assert import_zone.kinds() == ["import.begin", "import.success", "import.duplicate"]
    import_zone.check([1, 2, 3, 4])
    assert import_zone.files("inbox") == []


def test_i12_of_an_overlapping_bundle_only_what_is_missing_goes_in(import_zone: Any) -> None:
    assert import_zone.states(import_zone.medium(1, 4)) == ["imported"]
    (outcome,) = import_zone.run(import_zone.medium(1, 7)).outcomes
    assert (outcome.imported, outcome.duplicates) == (3, 4)
    (outcome,) = import_zone.run(import_zone.medium(3, 9, 11)).outcomes
    assert (outcome.imported, outcome.duplicates) == (2, 5)
    assert import_zone.states(import_zone.medium(2, 6, 11)) == ["duplicate"]
    import_zone.check(list(range(1, 10)))


def _refusal(code: str, detail: str = "") -> ErrorEnvelope:
    return ErrorEnvelope(
        code=code, message="no", detail={"detail_enum": detail} if detail else None, retry_after=0
    )


@contextmanager
def _taking_only(zone: Any, identity: str, count: int, error: ErrorEnvelope) -> Iterator[None]:
    """The hub takes so many messages of an identity of this zone, and refuses the others."""
    middle, settings = Middle(zone.hub.port), zone.root / "bridge.toml"
    client_id = ClientDir(zone.root / identity).read_card().client_id
    middle.plan = TakesOnly(client_id, count, error)
    before = settings.read_text()
    settings.write_text(before.replace(zone.hub.url, middle.url))
    try:
        yield
    finally:
        settings.write_text(before)
        middle.close()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(_refusal("E.TIME", "CAP_TTL"), "E.TIME/CAP_TTL", id="ended"),
        pytest.param(_refusal("E.RATE", "CAP_RATE"), "E.RATE/CAP_RATE", id="rate"),
        pytest.param(_refusal("E.CAP", "CAP_INVALID"), "E.CAP/CAP_INVALID", id="cap"),
        pytest.param(_refusal("E.UNAVAILABLE"), "E.UNAVAILABLE", id="no room"),
    ],
)
@pytest.mark.parametrize("position", [1, 4])
def test_i15_a_hub_that_rejects_leaves_a_partial_import_that_goes_on_later(
    import_zone: Any, error: ErrorEnvelope, code: str, position: int
) -> None:
    medium = import_zone.medium(1, 6)
    with _taking_only(import_zone, "bridge", position, error):
        (outcome,) = import_zone.run(medium).outcomes
    assert (outcome.state.value, outcome.code) == ("partial", code)
    failed = [audit for audit in import_zone.audits() if audit.KIND == "import.failed"]
    assert [item.position for item in failed] == [position]
    with import_zone.reader() as reader:
        assert len(list(reader.read(import_zone.target))) == position
    assert [item.state for item in import_status(import_zone.import_dir).unfinished] == ["partial"]
    assert import_status(import_zone.import_dir).next_command() == "veen bridge import"
    assert import_zone.states() == ["imported"]
    import_zone.check([1, 2, 3, 4, 5, 6])


def test_i19_without_an_audit_log_nothing_begins(import_zone: Any) -> None:
    medium = import_zone.medium(1, 3)
    with _taking_only(import_zone, "audit", 0, _refusal("E.TIME", "CAP_TTL")):
        result = import_zone.run(medium)
    assert result.pending is not None
    assert result.outcomes == ()
    assert import_zone.imported() == []
    assert import_zone.states() == ["imported"]
    import_zone.check([1, 2, 3])


def test_i20_an_audit_log_that_ends_before_the_success_is_reported_as_pending(
    import_zone: Any,
) -> None:
    medium = import_zone.medium(1, 3)
    with _taking_only(import_zone, "audit", 1, _refusal("E.TIME", "CAP_TTL")):
        result = import_zone.run(medium)
    assert result.pending is not None
    assert "wait on disk" in str(result.pending)
    assert result.outcomes == ()
    assert "import.success" not in import_zone.kinds()
    assert import_zone.files("receipts") == []
    assert import_status(import_zone.import_dir).next_command() == "veen bridge import"
    with ImportLedger(import_zone.import_dir.ledger) as ledger:
        (closing,) = ledger.pending()
        assert closing.bodies
    assert import_zone.run().pending is None
    assert import_zone.kinds().count("import.success") == 1
    import_zone.check([1, 2, 3])
