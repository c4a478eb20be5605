"""Audit a whole log, every chunk of it as a task of its own, and write a signed report.

    spark-submit spark_jobs/verify_log.py --store s3://bucket/prefix --hub-id HEX --report FILE

Ends with 0 when the log is whole, with 3 when it is not, with 4 when it cannot be audited, and
with 6 when it is whole by its own identity alone, which no --hub-identity or --known-hubs backs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recorder.archive.audit import AuditTerms, read_terms
from recorder.archive.log_files import LogFiles, LogInventory, in_archive, in_directory
from spark_jobs.session import auditor, session
from veen.audit.context import ChunkFindings, Context, Depth, Task
from veen.audit.engine import (
    AuditPool,
    ChunkObserver,
    audit_log,
    audit_task,
    ignore_chunk,
    in_order,
)
from veen.audit.report import AuditReport
from veen.audit.trust import TrustCheck
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.identity_store import newest_known
from veen.objects.store import add_options, store_ref
from veen.system import durable

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast

WAVE: Final = 1_024
"""Chunks in a Spark job, so that the driver's memory does not grow with the log."""
OK, FAULTS, REFUSED, UNPROVEN = 0, 3, 4, 6
HUB_ID_BYTES: Final = 32


Known = Callable[[bytes], HubIdentity | None]
"""Returns the newest identity of a hub, by its hub_id, that did not come from its log."""


def audit(
    inventory: LogInventory,
    terms: AuditTerms,
    depth: Depth,
    pool: AuditPool,
    observe: ChunkObserver = ignore_chunk,
    known: Known | None = None,
) -> AuditReport:
    """The report of a log; it does not depend on the pool or on the order of chunks.

    With ``known``, a note says with which identity of the hub it was verified, or that none is
    known. Without, it is the hub's own check of itself, as ``veen hub verify`` makes it.
    """
    trust = TrustCheck()
    hub = trust.read_hub(inventory.files.read)
    if known is not None:
        hub = trust.follow(hub, known(hub.hub_id))
    report = audit_log(inventory.log(), terms.context(hub, depth), pool, observe)
    return report.report([*inventory.faults, *trust.faults], trust.notes, ())


def here(files: LogFiles) -> AuditPool:
    """Audits in this process, one chunk after another."""
    return in_order(files.read)


@dataclass(frozen=True, slots=True)
class SparkAuditPool:
    """Audits chunks as Spark tasks: one for each chunk, or ``partitions`` of them."""

    spark: SparkContext
    files: LogFiles
    partitions: int | None = None

    def pool(self) -> AuditPool:
        return AuditPool(self.run, here(self.files).again)

    def run(self, tasks: Iterable[Task], context: Context) -> Iterator[ChunkFindings]:
        """Run in waves, each a job; the context is broadcast once."""
        waiting = iter(tasks)
        sent = self.spark.broadcast(context)
        work = partial(_audit_one, self.files, sent)
        while wave := list(islice(waiting, WAVE)):
            slices = min(self.partitions or WAVE, len(wave))
            yield from self.spark.parallelize(wave, slices).map(work).collect()
        sent.unpersist()


def _audit_one(files: LogFiles, context: Broadcast[Context], task: Task) -> ChunkFindings:
    return audit_task(task, files.read, context.value)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.store is not None and len(args.hub_id or b"") != HUB_ID_BYTES:
        parser.error("--store goes with --hub-id and its 64 hex digits")
    try:
        known = _KnownIdentity(args.hub_identity, args.known_hubs)
        report = _run(args, known)
    except VeenError as error:
        sys.stderr.write(f"verify_log: {error}\n")
        return FAULTS if isinstance(error, Untrusted) else REFUSED
    sys.stdout.write(
        f"verify_log: {report.entries} entries in {report.chunks} chunks of {report.labels} "
        f"labels, {len(report.faults)} faults\n"
    )
    if not report.ok:
        return FAULTS
    return OK if known.is_given else UNPROVEN


class _KnownIdentity:
    """The identity of the hub that the driver was given, and whether there is one."""

    def __init__(self, file: Path | None, directory: Path | None) -> None:
        self._file = file
        self._directory = directory
        self.is_given = False

    def __call__(self, hub_id: bytes) -> HubIdentity | None:
        known = newest_known(hub_id, self._file, self._directory)
        self.is_given = known is not None
        return known


def _run(args: argparse.Namespace, known: Known) -> AuditReport:
    terms = read_terms(args.terms)
    inventory = _inventory(args, terms)
    key = auditor(args.sign_with, args.passphrase_file)
    depth = Depth.HASHES if args.hashes_only else Depth.FULL
    with session("verify_log") as spark:
        pool = SparkAuditPool(spark.sparkContext, inventory.files, args.partitions).pool()
        report = audit(inventory, terms, depth, pool, known=known)
    durable.write(args.report, report.signed(key).to_json())
    return report


def _inventory(args: argparse.Namespace, terms: AuditTerms) -> LogInventory:
    if args.data_dir is not None:
        return in_directory(args.data_dir.absolute(), terms.acknowledged)
    return in_archive(store_ref(args.store, vars(args)), args.hub_id)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="verify_log", description=(__doc__ or "").partition("\n")[0]
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--store", metavar="URL", help="file:///path or s3://bucket/prefix")
    where.add_argument("--data-dir", type=Path, metavar="DIR", help="of a hub that does not run")
    parser.add_argument("--hub-id", type=bytes.fromhex, metavar="HEX", help="the hub in the store")
    parser.add_argument("--hub-identity", type=Path, metavar="FILE", help="newest one known of it")
    parser.add_argument("--known-hubs", type=Path, metavar="DIR", help="identities remembered")
    add_options(parser)
    parser.add_argument("--terms", type=Path, metavar="FILE", help="limits and streams of the hub")
    parser.add_argument("--hashes-only", action="store_true", help="no signatures of entries")
    parser.add_argument("--partitions", type=int, metavar="N", help="tasks; else one a chunk")
    parser.add_argument("--sign-with", type=Path, metavar="DIR", help="client directory")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="of that directory")
    parser.add_argument("--report", type=Path, required=True, metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
