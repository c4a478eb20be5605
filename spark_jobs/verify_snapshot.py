"""Verify a state snapshot by folding the log that it is of (operation profiles, 7.4).

    spark-submit spark_jobs/verify_snapshot.py --store s3://bucket/prefix --hub-id HEX
        --stream NAME --snapshot FILE --client DIR --out FILE

Exits with 0 if the snapshot is verified, with 3 if it is wrong, with 4 if that is unknown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from recorder.folds.snapshots import Expected, SnapshotVerdict, verify
from spark_jobs.fold_overlay import BROKEN, OK, code_of, fold_on, parser_of, request_of, site_of
from spark_jobs.session import session
from veen.errors import VeenError
from veen.overlay.snapshot import StateCheckpoint
from veen.system import durable


def main(argv: Sequence[str] | None = None) -> int:
    parser = parser_of("verify_snapshot", __doc__ or "")
    parser.add_argument("--snapshot", type=Path, required=True, metavar="FILE")
    parser.add_argument("--overlay", metavar="NAME", help="that its state_class has to be")
    parser.add_argument("--state-id", type=bytes.fromhex, metavar="HEX", help="that it has to have")
    parser.add_argument("--upto", type=int, metavar="N", help="that it has to be of")
    args = parser.parse_args(argv)
    try:
        verdict = _run(args)
    except (VeenError, OSError) as error:
        sys.stderr.write(f"verify_snapshot: {error}\n")
        return code_of(error)
    is_good = verdict.mismatch is None
    field = "" if verdict.mismatch is None else f": {verdict.mismatch.field}"
    sys.stdout.write(f"verify_snapshot: {'holds' if is_good else 'does not hold'}{field}\n")
    return OK if is_good else BROKEN


def _run(args: argparse.Namespace) -> SnapshotVerdict:
    claim = StateCheckpoint.decode(args.snapshot.read_bytes())
    expected = Expected(state_class=args.overlay, state_id=args.state_id, upto_seq=args.upto)
    site, requested = site_of(args), request_of(args, claim.state_class)
    archive = site.archive(args.hub_id)
    with session("verify_snapshot") as spark:
        verdict = verify(
            claim,
            expected,
            requested.job(archive),
            requested.end_seq(archive),
            lambda job: fold_on(spark.sparkContext, site, job, args.partitions),
        )
    durable.write(args.out, json.dumps(verdict.document(), sort_keys=True).encode())
    return verdict


if __name__ == "__main__":
    sys.exit(main())
