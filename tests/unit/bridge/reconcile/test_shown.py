"""A report as it is shown, signed, and carried back by hand."""

import json
from xml.etree import ElementTree as ET

import pytest

from bridge.exporter.gaps import GapFile
from bridge.reconcile.facts import Export, Import, ImportedFact, ReconcileFacts
from bridge.reconcile.reconcile import reconcile
from bridge.reconcile.render import MOST_ROWS, gap_files, svg, text
from bridge.reconcile.report import ReconcileReport, SignedReconcileReport
from support.bridge.reconcile_histories import a_history, named
from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted

HUB, KEY = named("hub"), SigningKey(bytes(32))
HOSTILE = "export/</text><script>alert(1)</script>\"'&\x00\x1b[2J\u202e\ud7ff"


def a_report(stream: str = "export/plant", count: int = 100) -> ReconcileReport:
    """Every second event was lost."""
    exports = [Export(HUB, stream, n, n, named(n), "ledger") for n in range(1, count + 1)]
    imports = [
        Import(HUB, stream, n, n, named(n), ImportedFact.IMPORTED, "import/x", n, n, n)
        for n in range(1, count, 2)
    ]
    return reconcile(ReconcileFacts(exports=exports, imports=imports))


def test_a_hostile_name_cannot_leave_its_place() -> None:
    report = a_report(HOSTILE)
    picture = ET.fromstring(svg(report))
    assert not [item for item in picture.iter() if item.tag.endswith("script")]
    assert "\x1b" not in text(report)
    assert all(line.isprintable() for line in text(report).splitlines())


def test_the_picture_says_what_it_shows_without_being_seen() -> None:
    picture = ET.fromstring(svg(a_report()))
    names = {item.tag.rpartition("}")[2]: item for item in picture}
    assert picture.get("role") == "img"
    assert set((picture.get("aria-labelledby") or "").split()) == {"title", "desc"}
    assert "50 missing" in (names["desc"].text or "")


def test_the_picture_does_not_grow_with_the_history() -> None:
    small, large = svg(a_report(count=2_000)), svg(a_report(count=6_000))
    assert len(large) < 1.1 * len(small)
    streams = [Export(HUB, f"export/{n}", 1, 1, named(n), "ledger") for n in range(1_000)]
    crowd = svg(reconcile(ReconcileFacts(exports=streams)))
    assert crowd.count("<g>") == MOST_ROWS
    assert "and 800 more streams" in crowd


def test_no_loss_is_too_small_to_be_seen() -> None:
    exports = [Export(HUB, "export/a", 1, 10**9, named("all"), "ledger")]
    imports = [
        Import(HUB, "export/a", 1, 5 * 10**8, named("all"), ImportedFact.IMPORTED, "import/a",
               1, 1, 1),
        Import(
            HUB, "export/a", 5 * 10**8 + 2, 10**9, named("all"), ImportedFact.IMPORTED, "import/a",
            5 * 10**8 + 1, 1, 1,
        ),
    ]  # fmt: skip
    queue = svg(reconcile(ReconcileFacts(exports=exports, imports=imports))).partition("<g>")[2]
    assert 'fill="#d55e00"' in queue


def test_pictures_of_all_histories_are_well_formed() -> None:
    for seed in range(200):
        report = reconcile(a_history(seed)[0])
        ET.fromstring(svg(report))
        assert text(report).endswith("\n")


def test_a_changed_report_is_not_as_it_was_signed() -> None:
    signed = SignedReconcileReport.of(a_report(), KEY)
    signed.verify(KEY.public)
    with pytest.raises(Untrusted, match="expected a signature by"):
        signed.verify(SigningKey(bytes(31) + b"\x01").public)
    forged = json.loads(signed.encode())
    forged["report"]["events"]["missing"] = 0
    raw = json.dumps(forged, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(Untrusted, match="the signature of the report is not valid"):
        SignedReconcileReport.decode(raw).verify(KEY.public)


def test_a_signed_report_comes_back_byte_for_byte() -> None:
    raw = SignedReconcileReport.of(a_report(), KEY).encode()
    assert SignedReconcileReport.decode(raw + b"\n").encode() == raw
    for bad in (b"{}", raw[:-1], raw.replace(b":", b": ", 1), b"[1]"):
        with pytest.raises(Malformed):
            SignedReconcileReport.decode(bad)


def test_the_gap_file_asks_for_exactly_what_is_missing() -> None:
    (result,) = gap_files(a_report(count=6))
    assert [(gap.from_seq, gap.to_seq) for gap in result.gaps] == [(2, 2), (4, 4), (6, 6)]
    assert GapFile.decode(result.encode()) == result
    assert gap_files(reconcile(ReconcileFacts())) == []
