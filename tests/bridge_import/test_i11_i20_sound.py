"""Bundles that are sound: once, in part, and with a hub or an audit log that does not take
them (I11, I12, I15, I19, I20).
"""

from __future__ import annotations

from typing import Any

import pytest

from veen.client.client import Client
from veen.client.hub_api import HubApi
from veen.errors import Failure, Rejected


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


def test_i15_a_hub_that_rejects_leaves_a_partial_import_that_goes_on_later(
    zone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, calls = HubApi.submit_batch, []

    def limited(api: HubApi, msgs: Any) -> Any:
        calls.append(len(msgs))
        if len(msgs) > 1:
            return [Rejected(Failure.CAP_TTL, "the capability has ended") for _ in msgs]
        return submit(api, msgs)

    medium = zone.medium(1, 6)
    with monkeypatch.context() as patched:
        patched.setattr(HubApi, "submit_batch", limited)
        (outcome,) = zone.run(medium).outcomes
    assert (outcome.state.value, outcome.code) == ("partial", "E.TIME/CAP_TTL")
    failed = [one for one in zone.audits() if one.KIND == "import.failed"]
    assert [one.position for one in failed] == [1]
    with zone.reader() as reader:
        assert len(list(reader.read(zone.target))) == 1
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
    assert result.outcomes == ()
    assert "import.success" not in zone.kinds()
    assert zone.run().pending is None
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
