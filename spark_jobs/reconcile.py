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

from bridge.reconcile import alarms, compact, fact_file
from bridge.reconcile.facts import Checkpoint, Export, Facts, Fork, Standing
from bridge.reconcile.kept import Places, keep
from bridge.reconcile.portions import CHECKPOINTS, distilled
from bridge.reconcile.reconcile import (
    StreamKey,
    assemble,
    newest_standings,
    settled_to,
    stream_facts,
)
from bridge.reconcile.report import Report
from bridge.reconcile.stream_report import StreamReport, reconcile_stream
from spark_jobs.signer import identity_in
from veen.errors import Malformed, VeenError

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

OK, NOT_WHOLE, REFUSED = 0, 3, 4
_MALFORMED: Final = f"{Malformed.__module__}.{Malformed.__name__}: "
_SMALL: Final = frozenset({"repeat", "fork", "route", "stranger"})


def reconcile_on(spark: SparkContext, lines: RDD[str], chosen: Collection[bytes] = ()) -> Report:
    """The report of facts that need not fit into one process; C1 is ``chosen`` by its id where the
    facts bring more than one of a hub.
    """
    heads = lines.filter(lambda one: one.startswith(CHECKPOINTS)).distinct().collect()
    of_checkpoints = fact_file.read(heads, chosen)
    settled = settled_to(of_checkpoints.target)
    facts = lines.mapPartitions(lambda part: distilled(part, settled)).cache()
    small = _small(facts, of_checkpoints)
    forks = _forks(spark, facts, small)
    newest = _newest(facts).cache()
    return assemble(
        small,
        streams=_streams(facts, newest, small, forks),
        ledgers=_by_key(facts, "entry", lambda one: one.bridge_id)
        .map(lambda one: alarms.reconcile_ledger(one[0], one[1]))
        .collect(),
        forks=forks,
        unplaced=newest.flatMap(lambda one: one.unplaced).collect(),
    )


def _small(facts: RDD[tuple[str, Any]], of_checkpoints: Facts) -> Facts:
    """What a report holds as it is: few, or the report would be as large."""
    kinds: dict[str, list[Any]] = {name: [] for name in (*_SMALL, "export", "import")}
    kinds |= {name: [] for name in ("standing", "entry")}
    kinds["source"] = list(of_checkpoints.sources)
    kinds["target"] = [of_checkpoints.target] if of_checkpoints.target else []
    for kind, one in facts.filter(lambda one: one[0] in _SMALL).collect():
        kinds[kind].append(one)
    return fact_file.facts_of(kinds)


def _forks(spark: SparkContext, facts: RDD[tuple[str, Any]], small: Facts) -> list[Fork]:
    ends = spark.parallelize(list(alarms.root_claims((), (), small.sources)))
    claims = facts.filter(lambda one: one[0] == "claim").map(lambda one: one[1]).union(ends)
    odd = (
        claims.map(lambda one: (tuple(one[:3]), one.root))
        .distinct()
        .groupByKey()
        .filter(lambda one: len(set(one[1])) > 1)
    )
    return sorted({*small.forks, *(Fork(*place) for place, _ in odd.collect())})


def _newest(facts: RDD[tuple[str, Any]]) -> RDD[Any]:
    """The last word on each bundle, which whoever exported it may have to place."""
    told = facts.filter(lambda one: one[0] in ("standing", "export"))
    return told.map(lambda one: (one[1].bundle_id, one[1])).groupByKey().map(_last_word)


def _last_word(one: tuple[bytes, Iterable[Standing | Export]]) -> Any:
    found = list(one[1])
    return newest_standings(
        [each for each in found if isinstance(each, Standing)],
        [each for each in found if isinstance(each, Export)],
    )


def _streams(
    facts: RDD[tuple[str, Any]], newest: RDD[Any], small: Facts, forks: Sequence[Fork]
) -> list[StreamReport]:
    standings = newest.flatMap(lambda one: [("standing", each) for each in one.standings])
    told = facts.filter(lambda one: one[0] in ("run", "export")).union(standings)
    sources, routes = small.sources, list(small.routes)
    keyed = told.map(lambda one: ((one[1].hub_id, one[1].stream), one))
    found: list[StreamReport] = (
        keyed.groupByKey()
        .map(lambda one: _stream(StreamKey(*one[0]), one[1], forks, routes, sources))
        .collect()
    )
    done = {(one.hub_id, one.stream) for one in found}
    named = {StreamKey(*one[:2]) for told in (forks, routes) for one in told} - done
    return found + [_stream(key, (), forks, routes, sources) for key in named]


def _stream(
    key: StreamKey,
    told: Iterable[tuple[str, Any]],
    forks: Sequence[Fork],
    routes: Sequence[Any],
    sources: tuple[Checkpoint, ...],
) -> StreamReport:
    kinds: dict[str, list[Any]] = {"run": [], "export": [], "standing": []}
    for kind, one in told:
        kinds[kind].append(one)
    of_key = Facts(routes=[one for one in routes if one[:2] == key], sources=sources)
    mine = [one for one in forks if one[:2] == key]
    runs = compact.joined(kinds["run"])
    (found,) = stream_facts(kinds["export"], runs, kinds["standing"], mine, of_key)
    return reconcile_stream(found)


def _by_key(facts: RDD[tuple[str, Any]], kind: str, key: Any) -> RDD[tuple[Any, Any]]:
    return (
        facts.filter(lambda one: one[0] == kind).map(lambda one: (key(one[1]), one[1])).groupByKey()
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
    parser.add_argument("--svg", type=Path, metavar="FILE", help="a lane for each stream")
    parser.add_argument("--gaps", type=Path, metavar="DIR", help="gap-<hub>.json for the exporter")
    parser.add_argument("--partitions", type=int, default=8, metavar="N")
    asked = parser.parse_args(argv)
    try:
        signer = asked.sign_with and identity_in(asked.sign_with, asked.passphrase_file).id_sign
        report = _run(asked)
    except (VeenError, OSError) as error:
        sys.stderr.write(f"reconcile: {error}\n")
        return NOT_WHOLE if isinstance(error, Malformed) else REFUSED
    keep(report, signer, Places(out=asked.out, picture=asked.svg, gaps=asked.gaps))
    sys.stdout.write(f"reconcile: {'whole' if report.is_whole else 'not whole'}\n")
    return OK if report.is_whole else NOT_WHOLE


def _run(asked: argparse.Namespace) -> Report:
    # The rule is used without Spark too.
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from spark_jobs.session import session  # noqa: PLC0415

    with session("reconcile") as spark:
        context = spark.sparkContext
        lines = context.textFile(",".join(asked.facts), asked.partitions)
        try:
            return reconcile_on(context, lines, asked.checkpoint)
        except PySparkException as error:
            told = _told_by_worker(str(error))
            if told is None:
                raise
            raise Malformed(told) from error


def _told_by_worker(trace: str) -> str | None:
    """What a worker had to say of its facts, out of all that Spark says of it."""
    found = [line for line in trace.splitlines() if line.startswith(_MALFORMED)]
    return found[-1].removeprefix(_MALFORMED) if found else None


if __name__ == "__main__":
    sys.exit(main())
