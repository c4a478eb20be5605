"""H27: what a recorder stream may hold is kept by the hub, whatever program sends to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub.settings import BadHubSettings, StreamBound, load, parse
from hub.storage.retention import BadRetention
from veen.wire.api import ErrorEnvelope

BOUND = 700


def detail(answer: Any) -> tuple[str, str]:
    envelope = ErrorEnvelope.decode(answer.data)
    assert envelope.detail is not None
    return envelope.code, envelope.detail["detail_enum"]


def test_h27_a_message_above_the_bound_of_its_stream_is_refused(hub: Any) -> None:
    writer = hub.writer("bounded", "bounded/a")
    around = len(writer.msg(1, bytes(300)).encode()) - 300
    fits = writer.msg(1, bytes(BOUND - around))
    assert len(fits.encode()) == BOUND
    over = writer.msg(1, bytes(BOUND - around + 1))
    assert detail(writer.submit(over)) == ("E.SIZE", "FIELD_SIZE")
    assert writer.submit(fits).status_code == 200
    # Another stream of the hub takes it.
    elsewhere = hub.writer("bounded", "record/a")
    assert elsewhere.submit(elsewhere.msg(1, bytes(BOUND))).status_code == 200


def test_h27_the_bound_is_reported_after_the_signature_and_before_the_capability(hub: Any) -> None:
    writer = hub.writer("bounded too", "bounded/a")
    over = writer.msg(1, bytes(BOUND))
    assert detail(writer.submit(replace(over, sig=bytes(64)))) == ("E.SIG", "SIG_INVALID")
    ungranted = writer.msg(1, bytes(BOUND), auth_ref=None)
    assert detail(writer.submit(ungranted)) == ("E.SIZE", "FIELD_SIZE")


def test_h27_bounds_are_read_from_the_settings() -> None:
    result = parse({"streams": [{"name": "record/a", "max_msg_bytes": 5}, {"name": "record/b"}]})
    assert result.bounds == (StreamBound("record/a", 5),)
    for wrong in (0, -1, "5", True):
        with pytest.raises(BadHubSettings, match="max_msg_bytes"):
            parse({"streams": [{"name": "record/a", "max_msg_bytes": wrong}]})


@pytest.mark.parametrize("pattern", ["record/*", "record/app/http", "record/[a-z]*"])
def test_h27_no_rule_lets_recorder_streams_go(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(BadRetention, match="expected 'long_term'"):
        parse({"retention": [{"streams": pattern, "keep_days": 3650}]})
    stored = parse({"retention": [{"streams": pattern, "keep_days": "long_term"}]})
    assert [item.keep_days for item in stored.retention] == [None]
    toml = tmp_path / "hub.toml"
    toml.write_text(f'[[retention]]\nstreams = "{pattern}"\nkeep_days = 1\n')
    with pytest.raises(BadHubSettings, match="remove the rule"):
        load(toml)
