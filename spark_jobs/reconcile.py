"""Reconcile a bridge from many facts: the report that one process gives, byte for byte (AGB0 4.7).

    spark-submit spark_jobs/reconcile.py --facts PATH [--facts PATH ...] --out FILE
        [--checkpoint HEX ...] [--sign-with DIR] [--svg FILE] [--gaps DIR]

Facts are lines as ``veen bridge reconcile --facts-out`` writes them; paths may be patterns, and
whatever Spark reads. Ends with 0 when all is whole, with 3 when it is not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.reconcile.facts import (
    BundleFact,
    CheckpointFact,
    Export,
    ForkFact,
    ReconcileFacts,
    facts_of,
    read_facts,
)
from bridge.reconcile.ranges import join_runs
from bridge.reconcile.reconcile import (
    CHECKPOINTS,
    StreamKey,
    assemble,
    distilled,
    newest_states,
    settled_to,
    stream_facts,
)
from bridge.reconcile.render import ReportPlaces, keep
from bridge.reconcile.report import (
    ReconcileReport,
    StreamReport,
    reconcile_ledger,
    reconcile_stream,
    root_claims,
)
from spark_jobs.session import identity_in, session
from veen.errors import Malformed, VeenError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

OK, NOT_WHOLE, REFUSED = 0, 3, 4
_MALFORMED: Final = f"{Malformed.__module__}.{Malformed.__name__}: "
_SMALL: Final = frozenset({"repeat", "fork", "route", "foreign"})


def reconcile_on(
    spark: SparkContext, lines: RDD[str], chosen: Collection[bytes] = ()
) -> ReconcileReport:
    """The report of facts that need not fit into one process.

    C1 is ``chosen`` by its id where the facts have more than one checkpoint of a hub.
    """
    heads = lines.filter(lambda line: line.startswith(CHECKPOINTS)).distinct().collect()
    of_checkpoints = read_facts(heads, chosen)
    settled = settled_to(of_checkpoints.target)
    facts = lines.mapPartitions(lambda part: distilled(part, settled)).cache()
    small = _small_facts(facts, of_checkpoints)
    forks = _forks(spark, facts, small)
    newest = _newest(facts).cache()
    return assemble(
        small,
        streams=_streams(facts, newest, small, forks),
        ledgers=_by_key(facts, "entry", lambda item: item.bridge_id)
        .map(lambda item: reconcile_ledger(item[0], item[1]))
        .collect(),
        forks=forks,
        unplaced=newest.flatMap(lambda item: item.unplaced).collect(),
    )


def _small_facts(facts: RDD[tuple[str, Any]], of_checkpoints: ReconcileFacts) -> ReconcileFacts:
    """The facts that a report contains unchanged; few, or the report would be as large."""
    kinds: dict[str, list[Any]] = {name: [] for name in (*_SMALL, "export", "import")}
    kinds |= {name: [] for name in ("bundle", "entry")}
    kinds["source"] = list(of_checkpoints.sources)
    kinds["target"] = [of_checkpoints.target] if of_checkpoints.target else []
    for kind, item in facts.filter(lambda item: item[0] in _SMALL).collect():
        kinds[kind].append(item)
    return facts_of(kinds)


def _forks(
    spark: SparkContext, facts: RDD[tuple[str, Any]], small: ReconcileFacts
) -> list[ForkFact]:
    ends = spark.parallelize(list(root_claims((), (), small.sources)))
    claims = facts.filter(lambda item: item[0] == "claim").map(lambda item: item[1]).union(ends)
    odd = (
        claims.map(lambda item: (tuple(item[:3]), item.root))
        .distinct()
        .groupByKey()
        .filter(lambda item: len(set(item[1])) > 1)
    )
    return sorted({*small.forks, *(ForkFact(*place) for place, _ in odd.collect())})


def _newest(facts: RDD[tuple[str, Any]]) -> RDD[Any]:
    """The newest fact on each bundle, placed by its export if necessary."""
    by_bundle = facts.filter(lambda item: item[0] in ("bundle", "export"))
    return by_bundle.map(lambda item: (item[1].bundle_id, item[1])).groupByKey().map(_newest_of)


def _newest_of(bundle: tuple[bytes, Iterable[BundleFact | Export]]) -> Any:
    facts = list(bundle[1])
    return newest_states(
        [fact for fact in facts if isinstance(fact, BundleFact)],
        [fact for fact in facts if isinstance(fact, Export)],
    )


def _streams(
    facts: RDD[tuple[str, Any]], newest: RDD[Any], small: ReconcileFacts, forks: Sequence[ForkFact]
) -> list[StreamReport]:
    bundle_facts = newest.flatMap(lambda item: [("bundle", fact) for fact in item.bundle_facts])
    stream_facts_ = facts.filter(lambda item: item[0] in ("run", "export")).union(bundle_facts)
    sources, routes = small.sources, list(small.routes)
    keyed = stream_facts_.map(lambda item: ((item[1].hub_id, item[1].stream), item))
    reports: list[StreamReport] = (
        keyed.groupByKey()
        .map(lambda item: _stream(StreamKey(*item[0]), item[1], forks, routes, sources))
        .collect()
    )
    done = {(report.hub_id, report.stream) for report in reports}
    named = {StreamKey(*fact[:2]) for facts_ in (forks, routes) for fact in facts_} - done
    return reports + [_stream(key, (), forks, routes, sources) for key in named]


def _stream(
    key: StreamKey,
    facts: Iterable[tuple[str, Any]],
    forks: Sequence[ForkFact],
    routes: Sequence[Any],
    sources: tuple[CheckpointFact, ...],
) -> StreamReport:
    kinds: dict[str, list[Any]] = {"run": [], "export": [], "bundle": []}
    for kind, item in facts:
        kinds[kind].append(item)
    of_key = ReconcileFacts(routes=[route for route in routes if route[:2] == key], sources=sources)
    mine = [fork for fork in forks if fork[:2] == key]
    runs = join_runs(kinds["run"])
    (of_stream,) = stream_facts(kinds["export"], runs, kinds["bundle"], mine, of_key)
    return reconcile_stream(of_stream)


def _by_key(facts: RDD[tuple[str, Any]], kind: str, key: Any) -> RDD[tuple[Any, Any]]:
    return (
        facts.filter(lambda item: item[0] == kind)
        .map(lambda item: (key(item[1]), item[1]))
        .groupByKey()
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="reconcile", description=__doc__)
    parser.add_argument("--facts", action="append", required=True, metavar="PATH")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--checkpoint", action="append", default=[], type=bytes.fromhex, metavar="HEX",
        help="C1, where facts bring more than one of a hub",
    )  # fmt: skip
    parser.add_argument("--sign-with", type=Path, metavar="DIR", help="the identity of the reader")
    parser.add_argument(
        "--passphrase-file", type=Path, metavar="FILE", help="its own; else $VEEN_PASSPHRASE"
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="picture, a row for each stream")
    parser.add_argument("--gaps", type=Path, metavar="DIR", help="gap-<hub>.json for the exporter")
    parser.add_argument("--partitions", type=int, default=8, metavar="N")
    args = parser.parse_args(argv)
    try:
        signer = args.sign_with and identity_in(args.sign_with, args.passphrase_file).id_sign
        report = _run(args)
    except (VeenError, OSError) as error:
        sys.stderr.write(f"reconcile: {error}\n")
        return NOT_WHOLE if isinstance(error, Malformed) else REFUSED
    keep(report, signer, ReportPlaces(out=args.out, picture=args.svg, gaps=args.gaps))
    sys.stdout.write(f"reconcile: {'whole' if report.is_whole else 'not whole'}\n")
    return OK if report.is_whole else NOT_WHOLE


def _run(args: argparse.Namespace) -> ReconcileReport:
    # Other modules import the rule without Spark.
    from pyspark.errors import PySparkException  # noqa: PLC0415

    with session("reconcile") as spark:
        context = spark.sparkContext
        lines = context.textFile(",".join(args.facts), args.partitions)
        try:
            return reconcile_on(context, lines, args.checkpoint)
        except PySparkException as error:
            detail = _worker_error(str(error))
            if detail is None:
                raise
            raise Malformed(detail) from error


def _worker_error(trace: str) -> str | None:
    """The message of a Malformed error in a worker's traceback, if there is one."""
    messages = [line for line in trace.splitlines() if line.startswith(_MALFORMED)]
    return messages[-1].removeprefix(_MALFORMED) if messages else None


if __name__ == "__main__":
    sys.exit(main())
