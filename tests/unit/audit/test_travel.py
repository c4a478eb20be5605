"""What an audit is asked and what it answers travel between processes; a report is signed."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.audit.audit_files import laid_out
from support.audit.audit_history import STREAMS, History, a_key
from support.audit.audit_pool import audited
from veen.audit.context import ChunkFindings, Context, Task
from veen.audit.engine import AuditPool, audit_task, in_order
from veen.audit.report import AuditReport, SignedAuditReport
from veen.errors import Malformed, Untrusted

Files = dict[str, bytes]


def test_an_audit_over_pickles_is_the_same(files: Files) -> None:
    """Tasks, context and findings go through bytes, as they do on their way to a cluster."""
    name = sorted(file for file in files if file.endswith(".log"))[1]
    files[name] = files[name][:700] + b"!" + files[name][701:]

    def run(tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        sent = [pickle.dumps((task, context)) for task in tasks]
        for item in sent:
            task, known = pickle.loads(item)
            findings = audit_task(task, files.get, known)
            there = pickle.loads(pickle.dumps(findings))
            assert there == findings
            yield there

    report = audited(files, AuditPool(run, in_order(files.get).again))
    assert report.to_json() == audited(files).to_json()
    assert [fault.file for fault in report.faults] == [name]


def test_findings_do_not_grow_with_the_entries() -> None:
    """A chunk of one client is summed up in the same size, however long it is."""
    sizes = []
    for events in (50, 400):
        history = History()
        client = a_key("client")
        token = history.authorize(client)
        for _ in range(events):
            history.send(client, STREAMS[0], token)
        files = laid_out(history, lambda: 10**6)
        stored: list[ChunkFindings] = []

        def run(
            tasks: Iterable[Task], context: Context, files: Files = files, stored: Any = stored
        ) -> Iterator[ChunkFindings]:
            for task in tasks:
                stored.append(audit_task(task, files.get, context))
                yield stored[-1]

        assert audited(files, AuditPool(run, in_order(files.get).again)).ok
        # Peaks are as many as the bits of the size: the only part that may differ.
        bare = replace(stored[-1], peaks=None)
        sizes.append(len(pickle.dumps(bare)))
    assert abs(sizes[1] - sizes[0]) < 64


def a_report(files: Files) -> AuditReport:
    del files[random.Random(3).choice(sorted(file for file in files if "summary" in file))]
    result: AuditReport = audited(files)
    assert not result.ok
    return result


def test_a_signed_report_holds_for_its_signer(files: Files) -> None:
    report, key = a_report(files), a_key("auditor")
    raw = report.signed(key).to_json()
    read = SignedAuditReport.from_json(raw)
    assert read.verify(key.public) == report
    assert read.to_json() == raw
    assert AuditReport.from_json(report.to_json()) == report
    with pytest.raises(Untrusted):
        read.verify(a_key("other").public)


@pytest.mark.parametrize("what", ["ok", "entries", "faults", "heads", "sig"])
def test_a_changed_report_does_not_hold(files: Files, what: str) -> None:
    key = a_key("auditor")
    document = json.loads(a_report(files).signed(key).to_json())
    changed = {"ok": True, "entries": 1, "faults": [], "heads": {}}
    if what == "sig":
        document["sig"] = "00" * 64
    else:
        document["report"][what] = changed[what]
    raw = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    with pytest.raises((Untrusted, Malformed)):
        SignedAuditReport.from_json(raw).verify(key.public)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"report":{},"sig":"","signed_by":""}'])
def test_what_is_no_report_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        SignedAuditReport.from_json(raw)
    with pytest.raises(Malformed):
        AuditReport.from_json(raw)
