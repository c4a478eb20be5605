"""A query on Spark: what its job is told, and what is known of its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veen_folded import reader_of
from veen_made import Made
from veen_words import storage
from veen_zone import zone

Context = Mapping[str, Any]


def query_arguments(context: Context) -> Sequence[str]:
    """The service has left descriptor and checkpoint where the result goes."""
    of, name = zone(), _result_id(context)
    place = _results(of.file) / "spark" / name
    given = ["--descriptor", str(place / "descriptor.json"), "--result-id", name]
    given += ["--checkpoint", str(place / "checkpoint.cbor"), "--hub-id", of.hub_id.hex()]
    # The job only reads the archive: it knows no option about writing there.
    options = [one for one in storage(of).options() if one != "--accept-overwriting-store"]
    return [*given, *options, *reader_of(of), "--out", str(place / "out")]


def queried(context: Context, state: str) -> Made:
    name = _result_id(context)
    path = _results(zone().file) / "spark" / name / "out"
    return Made(kind="query", id=name, state=state, path=str(path))


def _result_id(context: Context) -> str:
    return str(context["params"]["result_id"])


def _results(file: Any) -> Any:
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return load(file).query.results
