"""The audit of a log in memory, its chunks in an order of chance."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from audit_files import Files
from audit_history import HOURLY, LIMITS, STREAMS

from veen.audit.context import Context, Depth, begin
from veen.audit.engine import Crew, Log, audit_log, audit_task, in_order
from veen.audit.findings import ChunkFindings, Task
from veen.audit.report import Report
from veen.audit.stock import take_stock
from veen.audit.trust import TrustCheck


def audited(
    files: Files,
    crew: Crew | None = None,
    depth: Depth = Depth.FULL,
    control_is_whole: bool = True,
) -> Report:
    trust = TrustCheck()
    hub = trust.read_hub(files.get)
    context = begin(hub=hub, limits=LIMITS, profiles=(HOURLY,), streams=STREAMS, depth=depth)
    stock = take_stock(one for one in files if one.startswith("log/"))
    log = Log(stock=stock, read=files.get, control_is_whole=control_is_whole)
    found = audit_log(log, context, crew or in_any_order(files, random.Random(1)))
    return found.report(trust.faults, trust.notes, ())


def in_any_order(files: Files, chance: random.Random) -> Crew:
    """Audits the chunks in an order of chance, none knowing what another found."""

    def run(tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        wanted = list(tasks)
        found = {}
        for place in chance.sample(range(len(wanted)), len(wanted)):
            found[place] = audit_task(wanted[place], files.get, context)
        return (found[place] for place in range(len(wanted)))

    return Crew(run, in_order(files.get).again)
