"""The printable receipt: the same import gives the same page, and nobody else can make it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.importer.ledger import BundleRow, ImportPlan
from bridge.importer.receipt import PrintedReceipt, receipt_files
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Malformed

KEY = SigningKey(h(b"bridge offline"))
ROW = BundleRow(
    bundle_id=h(b"bundle"), state="imported", source_hub_id=h(b"hub"), stream="export/a\x1b[2J",
    target="import/a", from_seq=5, to_seq=9, checkpoint_id=h(b"checkpoint"),
    checkpoint_at=1_700_000_000, sha256=h(b"bytes"),
)  # fmt: skip
PLAN = ImportPlan(
    bundle_id=ROW.bundle_id, plan_id=bytes(16), source="", inbox="", import_time=1_700_000_500,
    written=5, duplicates=0, excluded="[]", base_client_seq=4, base_seq=4, accepted_gap=None,
    verification="valid", done=True, target_to=9, target_root=h(b"root"),
)  # fmt: skip


def test_the_same_import_gives_the_same_page() -> None:
    first, second = (receipt_files(PrintedReceipt.of(ROW, PLAN, KEY), ROW, PLAN) for _ in "ab")
    assert first == second
    (_, text), (_, svg) = first
    assert text.isascii()
    assert len(text.splitlines()) < 60
    assert max(map(len, text.splitlines())) <= 80
    assert svg.startswith("<svg")


def test_it_is_166_bytes_and_holds_only_as_it_was_signed() -> None:
    raw = PrintedReceipt.of(ROW, PLAN, KEY).raw
    assert len(raw) == 166
    assert PrintedReceipt.decode(raw).is_signed_by(KEY.public)
    for at in range(len(raw)):
        changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        assert not PrintedReceipt(changed).is_signed_by(KEY.public)
    with pytest.raises(Malformed):
        PrintedReceipt.decode(raw[:-1])


def test_six_words_differ_for_another_import() -> None:
    words = PrintedReceipt.of(ROW, PLAN, KEY).words()
    other = PrintedReceipt.of(replace(ROW, to_seq=10), PLAN, KEY).words()
    assert [len(part) for part in words.split()] == [5] * 6
    assert words != other
