"""What is exported, in which bundles, and what can be done with it where no key of the zone is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.audit_log import AuditPending, AuditWriter, parse
from bridge.exporter.build import NothingThere
from bridge.exporter.gaps import ExportGap, GapFile
from support.client.man_in_the_middle import Middle
from support.client.refusing_plan import TakesNone
from veen.crypto import hpke_public_key
from veen.digest import h
from veen.errors import Malformed
from veen.events import RecordEvent

CHANGES, ORDERS, LOG = "export/z1/changes", "record/app/orders", "bridge/online/log"
HUB = b"00" * 32
Media = Callable[[], Path]


def ranges(exported: Any) -> list[tuple[str, int, int]]:
    return [(item.entry.stream, item.entry.from_seq, item.entry.to_seq) for item in exported]


def files_of(bag: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(bag)): path.read_bytes() for path in bag.rglob("*") if path.is_file()
    }


def test_everything_new_is_exported_once(export_zone: Any, new_medium: Media, check: Any) -> None:
    first = export_zone.export(new_medium())
    assert ranges(first) == [(CHANGES, 1, 5), (CHANGES, 6, 7), (ORDERS, 1, 2)]
    assert [item.entry.n for item in first] == [1, 2, 3]
    assert export_zone.export(new_medium()) == []
    assert export_zone.kinds() == ["export.begin", "export.success"] * 3
    detail = [check(*item.bags).bundle for item in first]
    assert [(item.with_metadata, item.unopened) for item in detail] == [(5, 0), (2, 0), (0, 0)]


def test_the_log_of_exports_travels_and_then_falls_silent(fresh: Any, new_medium: Media) -> None:
    fresh.export(new_medium())
    end = fresh.checkpoint().end(LOG).last_seq
    *_, last = fresh.export(new_medium())
    assert (last.entry.stream, last.entry.to_seq) == (LOG, end)
    fresh.checkpoint()
    assert fresh.export(new_medium()) == []


def test_exporting_again_gives_the_same_bytes_though_the_log_has_grown(
    fresh: Any, new_medium: Media
) -> None:
    first, *_ = fresh.export(new_medium())
    fresh.emit(CHANGES, 4)
    fresh.checkpoint()
    asked = GapFile.of(
        first.entry.hub_id, [ExportGap(CHANGES, first.entry.to_seq, first.entry.to_seq)]
    )
    medium = new_medium()
    with fresh.exporter(medium) as exporter:
        (again,) = exporter.again(GapFile.decode(asked.encode()).gaps)
        (twice,) = exporter.again(asked.gaps)
    assert files_of(again.bags[0]) == files_of(first.bags[0])
    assert (again.is_again, twice.is_again) == (False, True)
    assert len(fresh.successes(medium)) == 1


def test_what_was_never_exported_cannot_be_exported_again(fresh: Any, new_medium: Media) -> None:
    with (
        fresh.exporter(new_medium()) as exporter,
        pytest.raises(NothingThere, match="no event of"),
    ):
        list(exporter.again([ExportGap(CHANGES, 10**6, 10**6)]))
    medium = new_medium()
    with fresh.exporter(medium) as exporter, pytest.raises(NothingThere, match="goes beyond"):
        list(exporter.again([ExportGap(CHANGES, 1, 10**6)]))
    assert list(medium.iterdir()) == []


def test_a_heartbeat_is_an_entry_of_the_ledger(fresh: Any, new_medium: Media, check: Any) -> None:
    fresh.export(new_medium())
    before = len(fresh.past().entries)
    with fresh.exporter(new_medium()) as exporter:
        *_, beat = exporter.heartbeat()
    report = check(*beat.bags)
    assert report.ok
    assert report.heartbeat is not None
    assert report.ledger.tail[-1].n == len(fresh.past().entries) > before
    assert fresh.kinds()[-1] == "export.heartbeat"


def test_every_carrier_tells_of_those_before_it(fresh: Any, new_medium: Media, check: Any) -> None:
    first, *_ = fresh.export(new_medium())
    fresh.emit(ORDERS, 1)
    fresh.checkpoint()
    later, *_ = fresh.export(new_medium())
    tail = check(*later.bags).ledger.tail
    assert first.entry in tail
    assert tail[-1] == later.entry


def test_a_sealed_carrier_opens_with_the_key_of_the_zone_alone(
    fresh: Any, new_medium: Media, check: Any
) -> None:
    private = h(b"zone")
    sealed = {"recipient": hpke_public_key(private).hex(), "compression": "zstd", "parity": 1}
    done, *_ = fresh.export(new_medium(), export=sealed)
    assert check(*done.bags).verdict == "E.AUTH/NO_KEY"
    report = check(*done.bags, privates=[private])
    assert report.ok
    assert report.bundle.header.bundle_id == done.entry.bundle_id
    asked = [ExportGap(done.entry.stream, done.entry.from_seq, done.entry.to_seq)]
    with fresh.exporter(new_medium(), export=sealed) as exporter:
        (again,) = exporter.again(asked)
    assert files_of(again.bags[0]) == files_of(done.bags[0])


def test_a_set_of_volumes_goes_to_as_many_media(fresh: Any, new_medium: Media, check: Any) -> None:
    packed = {"volume_bytes": 1024, "volumes_per_medium": 2}
    done, *_ = fresh.export(new_medium(), export=packed)
    assert len(done.bags) == 2
    assert check(*done.bags).ok
    assert check(*done.bags[1:]).verdict == "E.SIZE/INCOMPLETE"


def test_without_its_audit_entry_nothing_reaches_a_medium(fresh: Any, new_medium: Media) -> None:
    medium, middle = new_medium(), Middle(fresh.hub.port)
    middle.plan = TakesNone()
    hub = {"url": middle.url, "hub_id": fresh.identity().hub_id.hex()}
    with pytest.raises(AuditPending, match=f"1 entries for {LOG} wait on disk"):
        fresh.export(medium, hub=hub)
    middle.close()
    assert list(medium.iterdir()) == []
    begun = len(fresh.past().entries)
    done, *_ = fresh.export(medium)
    assert done.entry.n == begun + 1
    assert done.entry.stream == CHANGES


def test_an_entry_of_the_audit_log_reads_back_as_it_was_written(fresh: Any) -> None:
    recorded = fresh.log()[-1].event
    with fresh.client("audit") as client:
        writer = AuditWriter(client, LOG, origin="z1", recipient=bytes(32), clock=lambda: 5)
        event = RecordEvent.decode(writer.body(recorded))
    assert parse(event) == recorded
    assert event.event_type == recorded.KIND


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"[]",
        b'{"gaps":[],"source_hub_id":"00","version":1}',
        b'{"gaps":[{"from":2,"stream":"a","to":1}],"source_hub_id":"'
        + b"00" * 32
        + b'","version":1}',
        b'{"gaps": [],"source_hub_id":"' + b"00" * 32 + b'","version":1}',
        b"[" * 100_000,
    ],
)
def test_refuses_what_is_no_gap_file(raw: bytes, tmp_path: Path) -> None:
    with pytest.raises(Malformed):
        GapFile.decode(raw)
    path = tmp_path / "gaps.json"
    path.write_bytes(raw)
    with pytest.raises(Malformed, match="use the file that veen bridge reconcile wrote"):
        GapFile.read(path)


@pytest.mark.parametrize(
    "gaps",
    [
        (ExportGap("a", 1, 5), ExportGap("a", 5, 9)),
        (ExportGap("a", 4, 5), ExportGap("a", 1, 2)),
        (ExportGap("b", 1, 5), ExportGap("a", 6, 9)),
        (ExportGap("a", 1, 5), ExportGap("a", 1, 5)),
        (ExportGap("a", 1, 9), ExportGap("a", 2, 3)),
    ],
)
def test_refuses_gaps_that_overlap_or_are_out_of_order(gaps: tuple[ExportGap, ...]) -> None:
    with pytest.raises(Malformed, match="in order and without overlap"):
        GapFile.decode(GapFile(bytes(32), gaps).encode())


def test_no_more_of_a_gap_file_is_read_than_one_may_be_long(tmp_path: Path) -> None:
    path = tmp_path / "gaps.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Malformed, match="a gap file of at most 1048576 bytes"):
        GapFile.read(path)
