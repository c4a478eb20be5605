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
from dataclasses import replace
from pathlib import Path

from recorder.folds.job import FoldResult
from recorder.folds.wanted import Wanted
from spark_jobs.fold_tasks import Site, fold_on
from spark_jobs.store_door import add_options, door_of
from veen import durable
from veen.errors import Malformed, Untrusted, VeenError
from veen.overlay.tree import BLOCK
from veen.profile import Profile

OK, BROKEN, REFUSED = 0, 3, 4


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of("fold_overlay", __doc__ or "")
    parser.add_argument("--overlay", required=True, metavar="NAME")
    parser.add_argument("--from", dest="from_seq", type=int, default=1, metavar="N")
    parser.add_argument("--to", dest="to_seq", type=int, metavar="N", help="else all there is")
    asked = parser.parse_args(argv)
    try:
        result = _run(asked)
    except (VeenError, OSError) as error:
        sys.stderr.write(f"fold_overlay: {error}\n")
        return code_of(error)
    sys.stdout.write(
        f"fold_overlay: {result.overlay} from {result.from_seq} to {result.to_seq}: "
        f"digest {result.digest().hex()}\n"
    )
    return OK


def _run(asked: argparse.Namespace) -> FoldResult:
    # The local engine and the command line use this file without Spark.
    from spark_jobs.session import session  # noqa: PLC0415

    site, wanted = site_of(asked), wanted_of(asked, asked.overlay)
    wanted = replace(wanted, from_seq=asked.from_seq, to_seq=asked.to_seq)
    job = wanted.job(site.archive(asked.hub_id))
    with session("fold_overlay") as spark:
        result = fold_on(spark.sparkContext, site, job, asked.partitions)
    durable.write(asked.out, result.encode())
    return result


def site_of(asked: argparse.Namespace) -> Site:
    return Site(
        door=door_of(asked.store, vars(asked)),
        client=asked.client.absolute(),
        passphrase_file=asked.passphrase_file,
        profile=Profile(epoch_sec=asked.epoch_sec, pad_block=asked.pad_block),
    )


def wanted_of(asked: argparse.Namespace, overlay: str) -> Wanted:
    return Wanted(
        stream=asked.stream,
        overlay=overlay,
        profile=Profile(epoch_sec=asked.epoch_sec, pad_block=asked.pad_block),
        epoch=asked.epoch,
        block=asked.block,
        keeps_summaries=asked.summaries,
    )


def code_of(error: VeenError | OSError) -> int:
    return BROKEN if isinstance(error, Untrusted | Malformed) else REFUSED


def parser_of(job: str, text: str) -> argparse.ArgumentParser:
    """What every job that folds is told."""
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
    sys.exit(main())
