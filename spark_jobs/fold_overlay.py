"""Fold a stream by an overlay: whole nodes of the tree as tasks, merged in the tree by the driver.

    spark-submit spark_jobs/fold_overlay.py --store s3://bucket/prefix --hub-id HEX
        --stream NAME --overlay wallet.ledger --client DIR --out FILE

The result is the same bytes as that of ``veen fold --engine local``. The client directory is
opened on every host; no key travels. Ends with 0, with 3 when the archive does not hold, with 4
when there is nothing to fold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.archive.store import HubArchive
from recorder.folds.job import (
    FoldedNode,
    FoldJob,
    FoldRequest,
    FoldResult,
    PreparedSource,
    carry_out,
    height_for,
    make,
    plan,
)
from recorder.folds.source import ArchiveSource, FoldReader
from spark_jobs.session import identity_in, session
from veen.errors import Malformed, Untrusted, VeenError
from veen.label import Profile
from veen.limits import Limits
from veen.objects.store import StoreRef, add_options, store_ref
from veen.overlay.fold import BLOCK, Node
from veen.system import durable

if TYPE_CHECKING:
    from pyspark import SparkContext

OK, BROKEN, REFUSED = 0, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSite:
    """Where every host finds the archive and the reader's keys; only their names are sent."""

    services: StoreRef
    client: Path
    passphrase_file: Path | None = None
    profile: Profile

    def reader(self) -> FoldReader:
        identity = identity_in(self.client, self.passphrase_file)
        return FoldReader(identity.readers(), self.profile, Limits())

    def archive(self, hub_id: bytes) -> HubArchive:
        keeps = self.services.keeps_conditions is not None
        return HubArchive(self.services.to_put() if keeps else self.services.to_read(), hub_id)

    def ready_to_keep(self) -> FoldSite:
        """The same after probing that the store can hold summaries."""
        return replace(self, services=self.services.probed())


@lru_cache(maxsize=4)
def source_at(site: FoldSite, job: FoldJob) -> ArchiveSource:
    """The source of a process, shared by all its tasks of a job."""
    return job.source(site.archive(job.hub_id), site.reader())


def make_at(site: FoldSite, job: FoldJob, reader: bytes, node: Node) -> FoldedNode:
    if site.reader().scope() != reader:
        raise Untrusted(f"{site.client}: the keys on this host differ from those on the driver's")
    return make(job, source_at(site, job), node)


def fold_on(spark: SparkContext, site: FoldSite, job: FoldJob, partitions: int = 0) -> FoldResult:
    """Run a job.

    The result does not depend on the number of tasks. 0 is one for each node to compute.
    """
    if job.keeps_summaries:
        site = site.ready_to_keep()
    source = job.source(site.archive(job.hub_id), site.reader())
    fold_plan = plan(job, source, height_for(job, spark.defaultParallelism))
    made: list[FoldedNode] = []
    if fold_plan.due:
        work = partial(make_at, site, job, site.reader().scope())
        slices = min(partitions or len(fold_plan.due), len(fold_plan.due))
        made = spark.parallelize(fold_plan.due, slices).map(work).collect()
    return carry_out(job, PreparedSource(source, fold_plan, made))


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of("fold_overlay", __doc__ or "")
    parser.add_argument("--overlay", required=True, metavar="NAME")
    parser.add_argument("--from", dest="from_seq", type=int, default=1, metavar="N")
    parser.add_argument("--to", dest="to_seq", type=int, metavar="N", help="else all there is")
    args = parser.parse_args(argv)
    try:
        fold = _run(args)
    except (VeenError, OSError) as error:
        sys.stderr.write(f"fold_overlay: {error}\n")
        return code_of(error)
    sys.stdout.write(
        f"fold_overlay: {fold.overlay} from {fold.from_seq} to {fold.to_seq}: "
        f"digest {fold.digest().hex()}\n"
    )
    return OK


def _run(args: argparse.Namespace) -> FoldResult:
    site, request = site_of(args), request_of(args, args.overlay)
    request = replace(request, from_seq=args.from_seq, to_seq=args.to_seq)
    job = request.job(site.archive(args.hub_id))
    with session("fold_overlay") as spark:
        fold = fold_on(spark.sparkContext, site, job, args.partitions)
    durable.write(args.out, fold.encode())
    return fold


def site_of(args: argparse.Namespace) -> FoldSite:
    return FoldSite(
        services=store_ref(args.store, vars(args)),
        client=args.client.absolute(),
        passphrase_file=args.passphrase_file,
        profile=Profile(epoch_sec=args.epoch_sec, pad_block=args.pad_block),
    )


def request_of(args: argparse.Namespace, overlay: str) -> FoldRequest:
    return FoldRequest(
        stream=args.stream,
        overlay=overlay,
        profile=Profile(epoch_sec=args.epoch_sec, pad_block=args.pad_block),
        epoch=args.epoch,
        block=args.block,
        keeps_summaries=args.summaries,
    )


def code_of(error: VeenError | OSError) -> int:
    return BROKEN if isinstance(error, Untrusted | Malformed) else REFUSED


def parser_of(job: str, text: str) -> argparse.ArgumentParser:
    """The parser with the options of every job that folds."""
    parser = argparse.ArgumentParser(prog=job, description=text.partition("\n")[0])
    parser.add_argument("--store", required=True, metavar="URL")
    parser.add_argument("--hub-id", type=bytes.fromhex, required=True, metavar="HEX")
    add_options(parser)
    parser.add_argument("--stream", required=True, metavar="NAME")
    for name in ("epoch", "epoch-sec", "pad-block"):
        parser.add_argument(f"--{name}", type=int, default=0, metavar="N")
    parser.add_argument("--client", type=Path, required=True, metavar="DIR", help="who reads")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="on every host")
    parser.add_argument("--block", type=int, default=BLOCK, metavar="N", help="of the tree")
    parser.add_argument("--summaries", action="store_true", help="use and keep them in the clear")
    parser.add_argument("--partitions", type=int, default=0, metavar="N", help="tasks at most")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="for the result")
    return parser


if __name__ == "__main__":
    # Tasks are pickled by module name, and executors cannot import those of __main__.
    from spark_jobs import fold_overlay  # noqa: PLW0406

    sys.exit(fold_overlay.main())
