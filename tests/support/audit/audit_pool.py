"""The audit of a log in memory, its chunks in an order of chance."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from support.audit.audit_files import Files
from support.audit.audit_history import HOURLY, LIMITS, STREAMS
from veen.audit.context import ChunkFindings, Context, Depth, Task, begin, take_inventory
from veen.audit.engine import AuditedLog, AuditPool, audit_log, audit_task, in_order
from veen.audit.report import AuditReport
from veen.audit.trust import TrustCheck


def audited(
    files: Files,
    pool: AuditPool | None = None,
    depth: Depth = Depth.FULL,
    control_is_whole: bool = True,
) -> AuditReport:
    trust = TrustCheck()
    hub = trust.read_hub(files.get)
    context = begin(hub=hub, limits=LIMITS, profiles=(HOURLY,), streams=STREAMS, depth=depth)
    inventory = take_inventory(file for file in files if file.startswith("log/"))
    log = AuditedLog(inventory=inventory, read=files.get, control_is_whole=control_is_whole)
    result = audit_log(log, context, pool or in_any_order(files, random.Random(1)))
    return result.report(trust.faults, trust.notes, ())


def in_any_order(files: Files, chance: random.Random) -> AuditPool:
    """Audits the chunks in an order of chance, none knowing what another found."""

    def run(tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        expected = list(tasks)
        result = {}
        for place in chance.sample(range(len(expected)), len(expected)):
            result[place] = audit_task(expected[place], files.get, context)
        return (result[place] for place in range(len(expected)))

    return AuditPool(run, in_order(files.get).again)
