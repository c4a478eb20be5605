"""``veen hub metrics``: the counters of a hub, and a summary of its latencies."""

from __future__ import annotations

import math
import ssl
from typing import Annotated, Any, Final

import httpx
import typer
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from cli.console import global_options, show, show_text
from cli.options import HubOptions, retry_policy, tls
from veen.client.credentials import Credentials
from veen.client.transport import CBOR, HubRefused, Unreachable, refusal, resolve_address
from veen.errors import Malformed, Rejected
from veen.wire.api import ErrorEnvelope

_QUANTILE: Final = 0.95


def metrics(
    at: HubOptions,
    raw: Annotated[bool, typer.Option("--raw", help="Print the Prometheus text format.")] = False,
) -> None:
    """Show the counters of the hub, and its latencies as count, mean and p95.

    Example: veen hub metrics --hub http://127.0.0.1:8080
    """
    text = fetch_metrics(
        resolve_address(at.hub).url,
        credentials=at.credentials(),
        tls=tls(at.ca),
        timeout_sec=retry_policy().timeout_sec,
    )
    if raw and not global_options().json:
        show_text(text.splitlines())
    else:
        show({"metrics": text} if raw else metrics_summary(text))


def fetch_metrics(
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
        return Unreachable(f"{where} answered {reply.status_code} without an error envelope")


def metrics_summary(text: str) -> dict[str, Any]:
    """Counters and gauges as they are; for a histogram count, mean and an upper bound of its
    p95.
    """
    summary: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        if family.type == "histogram":
            summary[family.name] = _histogram(family)
        else:
            summary |= {
                _name(sample.name, sample.labels): _number(sample.value)
                for sample in family.samples
            }
    return dict(sorted(summary.items()))


def _name(name: str, labels: dict[str, str]) -> str:
    return "/".join([name, *(labels[key] for key in sorted(labels))])


def _histogram(family: Metric) -> dict[str, float | None]:
    values = {sample.name.removeprefix(family.name): sample.value for sample in family.samples}
    count = values["_count"]
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in family.samples
        if "le" in sample.labels
    ]
    bounds = (bound for bound, below in sorted(buckets) if below >= _QUANTILE * count)
    return {
        "count": _number(count),
        "mean": round(values["_sum"] / count, 3) if count else None,
        "p95_at_most": _number(next(bounds)) if count else None,
    }


def _number(value: float) -> float | None:
    """A number for JSON: integers as such, None for infinity."""
    if math.isinf(value):
        return None
    return int(value) if value.is_integer() else value
