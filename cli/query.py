"""``veen query``: ask the recorder, and check what it answered with nothing but the hub's name."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli import interrupt
from cli.anchor_trust import AnchorTrust
from cli.console import manner, notice, show, show_one
from cli.failure import INTEGRITY, OK, UNPROVEN, Unproven
from cli.options import key_in_hex
from cli.pinned_hub import KnownHubOptions
from cli.query_api import ApiOptions, QueryApi, QueryRefused
from cli.query_descriptor import DescriptorOptions
from cli.query_package import read_package
from cli.query_replay import replay
from recorder.query.digest import rows_hash
from recorder.query.package_check import check
from recorder.query.trust import Trust
from recorder.query.verdict import Outcome, State, Verdict
from veen import durable
from veen.errors import Untrusted
from veen.identity_file import SignedIdentity

app = typer.Typer(
    help="Ask what was recorded; check the answer offline, or by running it again.",
    no_args_is_help=True,
)
_PAGE: Final = 1_000
_FIRST_LOOK_SEC: Final = 0.1
_MOST_LOOK_SEC: Final = 5.0
_PACKAGE_SEC: Final = 60.0

ResultArgument = Annotated[str, typer.Argument(metavar="RESULT_ID", help="Like r-0123…")]


@app.command()
def submit(
    at: ApiOptions,
    asked: DescriptorOptions,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Until the query has ended.")
    ] = True,
) -> None:
    """Submit a query: it is recorded before it runs, and the digest of its result after.

    Prints the digest; the rows come with veen query result, the proof with veen query proof.

    Example: veen query submit --token-file token --stream record/app/http --subject user:1
    """
    with at.open() as api:
        found = api.submit(asked.document())
        names = found.get("result_digest") or found
        if wait:
            _await_end(api, names["result_id"])
            found = api.page(names["result_id"], 0, 1)
    if "result_digest" not in found:
        show(found)
        return
    _tell_faults(found)
    show({"status": "completed", "record_event": found["record_event"], **found["result_digest"]})


@app.command()
def status(at: ApiOptions, result_id: ResultArgument) -> None:
    """Tell how far a query has come: pending, running, completed or failed, and why.

    Example: veen query status r-6a1f0c54e2d94b7f8a3b5c6d7e8f9012 --token-file token
    """
    with at.open() as api:
        show(api.status(result_id))


@app.command()
def result(
    at: ApiOptions,
    result_id: ResultArgument,
    offset: Annotated[int, typer.Option("--offset", min=0, metavar="N", help="First row.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="So many; else all.")
    ] = None,
) -> None:
    """Print the rows of a result, one JSON object a line.

    When all rows are asked for, they are hashed and compared with the digest that the service
    gives. Both are the service's word: veen query verify proves them.

    Example: veen query result r-6a1f0c54e2d94b7f8a3b5c6d7e8f9012 --token-file token
    """
    with at.open() as api:
        if offset or limit is not None:
            for row in api.page(result_id, offset, limit or _PAGE)["rows"]:
                _show_row(row)
            return
        pages = _Pages(api, result_id)
        hashed = rows_hash(pages.rows())
    said = pages.digest["rows_hash"], pages.digest["row_count"]
    if (hashed.rows_hash, hashed.row_count) != said:
        raise Untrusted(f"the rows of {result_id} are not those of its digest")
    notice(
        f"{hashed.row_count} rows, rows_hash {hashed.rows_hash} as in the digest; unproven, the "
        "service's word, until veen query verify says proven of the package"
    )


@app.command()
def proof(
    at: ApiOptions,
    result_id: ResultArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to put it.")],
) -> None:
    """Fetch the evidence package of a result: one file, for veen query verify.

    Example: veen query proof r-6a1f0c54e2d94b7f8a3b5c6d7e8f9012 --token-file token --out p.json
    """
    with at.open() as api:
        raw = _package(api, result_id)
    durable.write(out, raw)
    show({"result_id": result_id, "package": str(out), "bytes": len(raw)})


@app.command()
def verify(
    package: Annotated[Path, typer.Argument(metavar="PACKAGE", help="From veen query proof.")],
    hub_id: Annotated[str, typer.Option("--hub-id", metavar="HEX", help="The hub it must be of.")],
    believe: AnchorTrust,
    known: KnownHubOptions,
    recorder_id: Annotated[
        list[str] | None,
        typer.Option(
            "--recorder-id",
            metavar="HEX",
            help="client_id that may have recorded it; may be repeated.",
        ),
    ] = None,
) -> None:
    """Check an evidence package offline: signatures, proofs, rows, hashes, sampling, ranges.

    The first line says proven (exit code 0), failed (3) or unproven (6), why, and what is known
    about missing rows; then each claim: held, failed, or not covered by the package. Without
    --recorder-id, and without --hub-identity or --known-hubs, nothing is proven: a key that the
    package calls current may have retired. Anchors are checked when you give what proves them.

    Example: veen query verify p.json --hub-id 1f3c… --recorder-id 9a4e… --hub-identity hub.cbor
    """
    recorders = frozenset(key_in_hex("--recorder-id", one) for one in recorder_id or ())
    name = key_in_hex("--hub-id", hub_id)
    trust = Trust(
        hub_id=name,
        recorder_ids=recorders,
        identity=known.newest(name),
        origin=known.remembered,
    )
    found = read_package(package)
    verdict = check(found, trust, believe.checks())
    if verdict.held("hub"):
        known.learn(SignedIdentity(found.hub, found.hub_signature))
    _report(package, verdict)


app.command()(replay)


class _Pages:
    """All rows of a result, page by page; each page must be of the same digest."""

    def __init__(self, api: QueryApi, result_id: str) -> None:
        self.digest: dict[str, Any] = {}
        self._api = api
        self._result_id = result_id

    def rows(self) -> Iterator[dict[str, Any]]:
        offset, more = 0, True
        while more:
            page = self._api.page(self._result_id, offset, _PAGE)
            if self.digest not in ({}, page["result_digest"]):
                raise Untrusted(f"{self._result_id} has another digest on each page")
            if not self.digest:
                _tell_faults(page)
            self.digest = page["result_digest"]
            for row in page["rows"]:
                _show_row(row)
                yield row
            offset += len(page["rows"])
            more = page["page"]["has_more"]


def _tell_faults(page: dict[str, Any]) -> None:
    """What the service says of the streams that were searched; an older one says nothing."""
    for one in page.get("faults", ()):
        notice(
            f"warning: {one['stream']} has {one['count']} events of types that belong to other "
            f"streams ({one['fault']}), first at {one['first_seq']}"
        )


def _show_row(row: dict[str, Any]) -> None:
    show_one({"row": row}, [json.dumps(row, sort_keys=True, ensure_ascii=False)])


def _await_end(api: QueryApi, result_id: str) -> None:
    pause = _FIRST_LOOK_SEC
    while True:
        found = api.status(result_id)
        if found["status"] == "completed":
            return
        if found["status"] == "failed":
            raise QueryRefused(str(found["error_code"]), str(found["message"]))
        interrupt.sleep(pause)
        pause = min(2 * pause, _MOST_LOOK_SEC)


def _package(api: QueryApi, result_id: str) -> bytes:
    """Its digest must be in the index first, which takes a moment."""
    deadline, pause = time.monotonic() + _PACKAGE_SEC, _FIRST_LOOK_SEC
    while True:
        try:
            return api.proof(result_id)
        except QueryRefused as error:
            if error.code != "result_not_ready" or time.monotonic() > deadline:
                raise
        interrupt.sleep(pause)
        pause = min(2 * pause, _MOST_LOOK_SEC)


_EXIT_CODES: Final = {
    Outcome.PROVEN: OK,
    Outcome.FAILED: INTEGRITY,
    Outcome.UNPROVEN: UNPROVEN,
}


def _report(package: Path, verdict: Verdict) -> None:
    """Show a verdict and end with the exit code of its outcome."""
    proven = verdict.outcome is Outcome.PROVEN
    show({**verdict.document(), "ok": proven}, _lines_of(verdict))
    if proven:
        return
    if manner().json:
        raise typer.Exit(_EXIT_CODES[verdict.outcome])
    kind = Untrusted if verdict.outcome is Outcome.FAILED else Unproven
    raise kind(f"{package} is {'refused' if verdict.failed else 'unproven'}: {verdict.reason}")


def _lines_of(verdict: Verdict) -> str:
    width = max(len(one.state.value) for one in verdict.claims)
    lines = [f"{one.state.value:{width}}  {one.name}: {one.told}" for one in verdict.claims]
    held = sum(one.state is State.HELD for one in verdict.claims)
    total = f"{held} held, {len(verdict.failed)} failed, of {len(verdict.claims)} claims"
    return "\n".join([verdict.summary, *lines, total])
