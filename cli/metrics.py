"""A hub's metrics: Prometheus' text, and a summary of it (OBS0.1)."""

from __future__ import annotations

import math
import ssl
from typing import Any, Final

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from veen.client.credentials import Credentials
from veen.client.errors import HubRefused, Unreachable, refusal
from veen.client.transport import CBOR
from veen.envelope import ErrorEnvelope
from veen.errors import Malformed, Rejected

_QUANTILE: Final = 0.95


def fetch(
    url: str, *, credentials: Credentials, tls: ssl.SSLContext | None, timeout_sec: float
) -> str:
    where = f"{url}/metrics"
    headers = {**credentials.headers("GET", where, b""), "Accept": CBOR}
    verify = tls if tls is not None else True
    try:
        reply = httpx.get(
            where, headers=headers, timeout=timeout_sec, verify=verify, trust_env=False
        )
    except httpx.HTTPError as error:
        raise Unreachable(f"{url} does not answer: {error}") from error
    if reply.status_code != httpx.codes.OK:
        raise _refused(where, reply)
    return reply.text


def _refused(where: str, reply: httpx.Response) -> Rejected | HubRefused | Unreachable:
    try:
        return refusal(ErrorEnvelope.decode(reply.content))
    except Malformed:
        return Unreachable(f"{where} answered {reply.status_code} without saying why")


def summary(text: str) -> dict[str, Any]:
    """Counters and gauges as they are; of a histogram count, mean and a bound of its p95."""
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        if family.type == "histogram":
            found[family.name] = _histogram(family)
        else:
            found |= {_name(one.name, one.labels): _number(one.value) for one in family.samples}
    return dict(sorted(found.items()))


def _name(name: str, labels: dict[str, str]) -> str:
    return "/".join([name, *(labels[key] for key in sorted(labels))])


def _histogram(family: Metric) -> dict[str, float | None]:
    values = {one.name.removeprefix(family.name): one.value for one in family.samples}
    count = values["_count"]
    buckets = [(float(one.labels["le"]), one.value) for one in family.samples if "le" in one.labels]
    bounds = (bound for bound, below in sorted(buckets) if below >= _QUANTILE * count)
    return {
        "count": _number(count),
        "mean": round(values["_sum"] / count, 3) if count else None,
        "p95_at_most": _number(next(bounds)) if count else None,
    }


def _number(value: float) -> float | None:
    """Whole numbers as such; what is beyond the last bound has no number in JSON."""
    if math.isinf(value):
        return None
    return int(value) if value.is_integer() else value
