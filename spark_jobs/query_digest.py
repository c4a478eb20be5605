"""Answer a query from an archive, up to a recorder checkpoint (Query API 8).

    spark-submit spark_jobs/query_digest.py --descriptor FILE --result-id ID --checkpoint FILE
        --store s3://bucket/prefix --hub-id HEX --client DIR --out DIR

The rows, their hash and the evidence are the bytes that the inline engine gives. Ends with 0 when
the result is in its directory; with 3 when the archive is not what the hub has signed, with 4 when
it does not hold what is asked for. Then there is no result at all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from recorder.query.descriptor import read_descriptor
from recorder.query.json_text import JsonLimits, parse_json
from spark_jobs.event_work import Reader
from spark_jobs.store_door import OPTIONS, door_of
from veen.errors import Malformed, Untrusted, VeenError
from veen.import_event import is_import
from veen.recorder_checkpoint import RecorderCheckpoint

OK, BROKEN, REFUSED = 0, 3, 4
_LIMITS: Final = JsonLimits(max_bytes=4 << 20)


class NotOnSpark(VeenError):
    """A query that only the index can answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        _run(asked)
    except (VeenError, OSError) as error:
        sys.stderr.write(f"query_digest: {error}\n")
        return BROKEN if isinstance(error, Untrusted | Malformed) else REFUSED
    sys.stdout.write(f"query_digest: the result is in {asked.out}\n")
    return OK


def _run(asked: argparse.Namespace) -> None:
    # A wrong call is told at once; both of these start Spark's Python.
    from spark_jobs.query_run import Question, Site, answer  # noqa: PLC0415
    from spark_jobs.session import session  # noqa: PLC0415

    descriptor = read_descriptor(parse_json(asked.descriptor.read_bytes(), _LIMITS))
    imports = [one for one in descriptor.scope if is_import(one)]
    if imports:
        raise NotOnSpark(
            f"the scope has {imports[0]}: import streams are answered by the index alone, which "
            "knows where each bundle is complete; narrow the query, or raise row_budget"
        )
    checkpoint = RecorderCheckpoint.decode(asked.checkpoint.read_bytes())
    reader = Reader(asked.client.absolute(), asked.passphrase_file)
    site = Site(door_of(asked.store, vars(asked)), asked.hub_id, reader)
    question = Question(descriptor, asked.result_id, asked.out.absolute())
    with session("query_digest") as spark:
        answer(spark.sparkContext, site, checkpoint, [question], asked.partitions)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="query_digest", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--descriptor", type=Path, required=True, metavar="FILE", help="normalised")
    parser.add_argument("--result-id", required=True, metavar="ID")
    parser.add_argument(
        "--checkpoint", type=Path, required=True, metavar="FILE", help="of the recorder, in CBOR"
    )
    parser.add_argument("--store", required=True, metavar="URL", help="file:/// or s3://")
    parser.add_argument("--hub-id", required=True, type=bytes.fromhex, metavar="HEX")
    for name in OPTIONS:
        parser.add_argument(f"--{name}", help="of a store like S3")
    parser.add_argument(
        "--client", required=True, type=Path, metavar="DIR", help="who reads; on every host"
    )
    parser.add_argument(
        "--passphrase-file", type=Path, metavar="FILE", help="on every host; else $VEEN_PASSPHRASE"
    )
    parser.add_argument("--partitions", type=int, default=0, metavar="N", help="tasks at most")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the result")
    return parser


if __name__ == "__main__":
    sys.exit(main())
