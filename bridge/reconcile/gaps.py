"""The gap files of a report: what to ask each exporting hub for again (AGB0 4.7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from bridge.export_gaps import Gap, GapFile
from bridge.reconcile.report import Report
from bridge.reconcile.stream_report import Class


def gap_files(report: Report, wanted: Collection[Class] = (Class.MISSING,)) -> list[GapFile]:
    """One for each hub that something is missing of."""
    found: dict[bytes, list[Gap]] = defaultdict(list)
    for one in report.streams:
        for kind in wanted:
            found[one.hub_id] += [Gap(one.stream, *span) for span in one.classes[kind]]
    return [GapFile.of(hub_id, gaps) for hub_id, gaps in sorted(found.items()) if gaps]
