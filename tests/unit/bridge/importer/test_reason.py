"""``reason.json``: the versions that are read, and what a reader is told of one that is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.importer.reason import REASON, code_of, encode_reason, quarantined, read_reason


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / REASON).write_text(text)
    return folder


def test_a_reason_is_read_as_it_was_written(tmp_path: Path) -> None:
    text = encode_reason("E.SIG/VOLUME", "a volume", ["inbox/a"], evidence={"seq": 4})
    reason = read_reason(write(tmp_path / "a", text))
    assert reason == {
        "version": 2, "code": "E.SIG/VOLUME", "detail": "a volume", "received": ["inbox/a"],
        "seq": 4,
    }  # fmt: skip


def test_a_reason_with_hashes_alone_stands_for_its_carrier(tmp_path: Path) -> None:
    hashes = write(tmp_path / "hashes", encode_reason("UNSIGNED", "", [], hashes=["ab  bagit.txt"]))
    assert code_of(hashes) == "UNSIGNED"
    carrier = write(tmp_path / "carrier", encode_reason("UNSIGNED", "", []))
    assert code_of(carrier) is None
    (carrier / "1").mkdir()
    assert code_of(carrier) == "UNSIGNED"


def test_a_reason_of_version_1_is_read(tmp_path: Path) -> None:
    document = {"code": "UNSIGNED", "told": "why", "received": [], "kept": "hashes", "hashes": []}
    folder = write(tmp_path / "quarantine" / "a", json.dumps(document))
    assert code_of(folder) == "UNSIGNED"
    (carrier,), total = quarantined(tmp_path / "quarantine", 10)
    assert (carrier.code, carrier.detail, total) == ("UNSIGNED", "why", 1)


@pytest.mark.parametrize("text", ['{"version": 3, "code": "X"}', "[]", "{", '{"version": []}'])
def test_a_reason_that_cannot_be_read_is_shown_as_such(tmp_path: Path, text: str) -> None:
    folder = write(tmp_path / "quarantine" / "a", text)
    (folder / "1").mkdir()
    assert code_of(folder) is None
    (carrier,), _ = quarantined(tmp_path / "quarantine", 10)
    assert carrier.code == "unknown"
    assert "version 2 or earlier, got none that can be read" in carrier.detail
