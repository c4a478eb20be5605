"""Bundles that are sound: once, in part, and with a hub or an audit log that does not take
them (I11, I12, I15, I19, I20).
"""

from __future__ import annotations

from typing import Any

import pytest

from bridge.importer.ledger import ImportLedger
from bridge.importer.status import import_status
from veen.client.client import Client
from veen.client.hub_api import HubApi
from veen.client.transport import HubRefused
from veen.errors import Failure, Rejected
from veen.keystore.directory import ClientDir
from veen.msg import Msg


def test_i11_a_bundle_once_more_is_a_duplicate_and_writes_nothing(zone: Any) -> None:
    medium = zone.medium(1, 4)
    assert zone.states(medium) == ["imported"]
    assert zone.states(medium) == ["duplicate"]
    assert zone.kinds() == ["import.begin", "import.success", "import.duplicate"]
    zone.check([1, 2, 3, 4])
    assert zone.files("inbox") == []


def test_i12_of_an_overlapping_bundle_only_what_is_missing_goes_in(zone: Any) -> None:
    assert zone.states(zone.medium(1, 4)) == ["imported"]
    (outcome,) = zone.run(zone.medium(1, 7)).outcomes
    assert (outcome.imported, outcome.duplicates) == (3, 4)
    (outcome,) = zone.run(zone.medium(3, 9, 11)).outcomes
    assert (outcome.imported, outcome.duplicates) == (2, 5)
    assert zone.states(zone.medium(2, 6, 11)) == ["duplicate"]
    zone.check(list(range(1, 10)))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(Rejected(Failure.CAP_TTL, "it has ended"), "E.TIME/CAP_TTL", id="ended"),
        pytest.param(Rejected(Failure.CAP_RATE, "too fast"), "E.RATE/CAP_RATE", id="rate"),
        pytest.param(Rejected(Failure.CAP_INVALID, "revoked"), "E.CAP/CAP_INVALID", id="cap"),
        pytest.param(HubRefused("E.UNAVAILABLE", "no room", {}, 0), "E.UNAVAILABLE", id="no room"),
    ],
)
@pytest.mark.parametrize("position", [1, 4])
def test_i15_a_hub_that_rejects_leaves_a_partial_import_that_goes_on_later(
    zone: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: Rejected | HubRefused,
    code: str,
    position: int,
) -> None:
    submit, taken = HubApi.submit_batch, [0]

    def limited(api: HubApi, msgs: Any) -> Any:
        """Of the bridge's messages the hub takes so many, and no more."""
        if Msg.decode(msgs[0]).client_id != bridge_id:
            return submit(api, msgs)
        room = position - taken[0]
        taken[0] += min(room, len(msgs))
        if room <= 0 and isinstance(error, HubRefused):
            raise error
        result = submit(api, msgs[:room]) if room > 0 else []
        refused = error if isinstance(error, Rejected) else Rejected(Failure.CAP_RATE, "wait")
        return [*result, *[refused for _ in msgs[room:]]]

    bridge_id = ClientDir(zone.root / "bridge").read_card().client_id
    medium = zone.medium(1, 6)
    with monkeypatch.context() as patched:
        patched.setattr(HubApi, "submit_batch", limited)
        (outcome,) = zone.run(medium).outcomes
    assert (outcome.state.value, outcome.code) == ("partial", code)
    failed = [audit for audit in zone.audits() if audit.KIND == "import.failed"]
    assert [item.position for item in failed] == [position]
    with zone.reader() as reader:
        assert len(list(reader.read(zone.target))) == position
    assert [item.state for item in import_status(zone.import_dir).unfinished] == ["partial"]
    assert import_status(zone.import_dir).next_command() == "veen bridge import"
    assert zone.states() == ["imported"]
    zone.check([1, 2, 3, 4, 5, 6])


def test_i19_without_an_audit_log_nothing_begins(
    zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = zone.medium(1, 3)
    with monkeypatch.context() as patched:
        _cut_audit(patched, zone, after=0)
        result = zone.run(medium)
    assert result.pending is not None
    assert result.outcomes == ()
    assert zone.imported() == []
    assert zone.states() == ["imported"]
    zone.check([1, 2, 3])


def test_i20_an_audit_log_that_ends_before_the_success_is_told_as_pending(
    zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    medium = zone.medium(1, 3)
    with monkeypatch.context() as patched:
        _cut_audit(patched, zone, after=1)
        result = zone.run(medium)
    assert result.pending is not None
    assert "wait on disk" in str(result.pending)
    assert result.outcomes == ()
    assert "import.success" not in zone.kinds()
    assert zone.files("receipts") == []
    assert import_status(zone.import_dir).next_command() == "veen bridge import"
    with ImportLedger(zone.import_dir.ledger) as ledger:
        (closing,) = ledger.pending()
        assert closing.bodies
    assert zone.run().pending is None
    assert zone.kinds().count("import.success") == 1
    zone.check([1, 2, 3])


def _cut_audit(patched: pytest.MonkeyPatch, zone: Any, after: int) -> None:
    """The audit identity's entries are refused after so many."""
    flush, left = Client.flush, [after]
    home = zone.root / "audit"

    def limited(client: Client, *args: Any) -> Any:
        if client.session.root == home:
            left[0] -= 1
            if left[0] < 0:
                raise Rejected(Failure.CAP_TTL, "the capability has ended")
        return flush(client, *args)

    patched.setattr(Client, "flush", limited)
