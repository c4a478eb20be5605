"""``veen query``: query the recorder, verify its answers with the hub's id only, and replay a
query.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cli.anchor import AnchorTrust
from cli.console import global_options, notice, show, show_one
from cli.errors import INTEGRITY, OK, UNPROVEN, Unproven
from cli.hub_checkpoint import KnownHubOptions
from cli.options import key_in_hex
from cli.query_options import ApiOptions
from cli.recorder_options import RecorderOptions, now_ms
from recorder.emit.emitter import Observation
from recorder.index import imports
from recorder.index.tables import IndexHome
from recorder.query.client import QueryApi, await_result, fetch_package, read_package
from recorder.query.digest import rows_hash
from recorder.query.package import PackageFacts, PackageTrust
from recorder.query.package_verify import ClaimOutcome, ClaimState, PackageVerdict, check
from recorder.service import rerun
from recorder.service.rerun import Beyond, ReplayVerdict, RerunRequest, find_recorded, read_beyond
from recorder.settings import RecorderSettings
from veen.client.session import load_state
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity, newest_identity
from veen.identity_store import SignedIdentity
from veen.keystore.directory import ClientDir
from veen.system import durable
from veen.system.signals import interruptible_sleep

Texts = list[str] | None
_REPLAYED = "query.replayed"
_PAGE: Final = 1_000
_EXIT_CODES: Final = {
    ClaimOutcome.PROVEN: OK,
    ClaimOutcome.FAILED: INTEGRITY,
    ClaimOutcome.UNPROVEN: UNPROVEN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorOptions:
    """The options of a query descriptor."""

    descriptor: Annotated[
        str | None,
        typer.Option(
            "--descriptor", metavar="FILE", help="Query descriptor as JSON; - reads stdin."
        ),
    ] = None
    stream: Annotated[
        Texts, typer.Option("--stream", metavar="NAME", help="Stream to search; repeatable.")
    ] = None
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="ID", help="Match this subject_id.")
    ] = None
    event_type: Annotated[
        Texts, typer.Option("--type", metavar="TYPE", help="Match this event_type; repeatable.")
    ] = None
    from_time: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Earliest commit time.")
    ] = None
    to_time: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Latest commit time.")
    ] = None
    field: Annotated[
        Texts,
        typer.Option(
            "--field", metavar="PATH", help="Field to return, like payload.status; repeatable."
        ),
    ] = None
    group_by: Annotated[
        Texts, typer.Option("--group-by", metavar="PATH", help="Field to group by; repeatable.")
    ] = None
    metric: Annotated[
        Texts,
        typer.Option("--metric", metavar="M", help="Aggregate: count, max(payload.x); repeatable."),
    ] = None
    evidence: Annotated[
        str, typer.Option("--evidence", metavar="MODE", help="Evidence: none, spot or full.")
    ] = "full"
    sample_rate: Annotated[
        float | None,
        typer.Option("--sample-rate", metavar="R", help="Sample rate for spot: 0 < R <= 1."),
    ] = None
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Reason; it is recorded.")
    ] = None

    def document(self) -> dict[str, Any]:
        """The descriptor; the service completes and validates it."""
        if self.descriptor is not None:
            return _read(self.descriptor)
        if not self.stream:
            raise typer.BadParameter("give --stream NAME, or --descriptor FILE with all of it")
        descriptor: dict[str, Any] = {
            "scope": self.stream,
            "filter": {
                "subject_id": self.subject,
                "event_type": self.event_type or None,
                "time": {"from": self.from_time, "to": self.to_time},
            },
            "projection": self.field or ["*"],
            "evidence": {"mode": self.evidence, "sample_rate": self.sample_rate},
        }
        if self.metric:
            descriptor["aggregate"] = {"group_by": self.group_by or [], "metrics": self.metric}
        return descriptor | ({"meta": {"reason": self.reason}} if self.reason else {})


def _read(file: str) -> dict[str, Any]:
    text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        document = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{file}: expected JSON: {error}") from error
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{file}: expected a JSON object")
    return document


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedQuery:
    """The query to replay: of a package, or one whose descriptor and digest were imported."""

    package: Annotated[
        Path | None, typer.Argument(metavar="PACKAGE", help="Proof package of veen query proof.")
    ] = None
    query_id: Annotated[
        str | None,
        typer.Option("--query-id", metavar="ID", help="query_id of an imported digest."),
    ] = None
    result_id: Annotated[
        str | None,
        typer.Option("--result-id", metavar="ID", help="result_id of an imported digest."),
    ] = None
    hub_id: Annotated[
        str | None,
        typer.Option("--hub-id", metavar="HEX", help="Hub of the log; default: that of the "
                     "settings, or of the import with that id."),
    ] = None  # fmt: skip

    def verify_one(self) -> None:
        given = [item for item in (self.package, self.query_id, self.result_id) if item is not None]
        if len(given) != 1:
            raise typer.BadParameter("give exactly one of PACKAGE, --query-id and --result-id")

    def requested(self) -> RerunRequest:
        """The reference to an imported query."""
        hub_id = key_in_hex("--hub-id", self.hub_id) if self.hub_id else None
        if self.query_id is not None:
            return RerunRequest("query_id", self.query_id, hub_id)
        return RerunRequest("result_id", self.result_id or "", hub_id)


def replay(
    at: RecorderOptions,
    query: ReplayedQuery,
    known: KnownHubOptions,
    index: Annotated[
        Path | None,
        typer.Option(
            "--index", metavar="DIR", help="Index directory; default: [index] of the settings."
        ),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Record the outcome in record/query/replays.")
    ] = False,
) -> None:
    """Run a query again on a local index, and compare its digest.

    Reads and verifies every position again, so that an omitted row is detected. Missing ranges are
    listed; the acting identity must be able to read and decrypt the import streams, or events
    behind a gap count as missing.

    Example: veen query replay --result-id r-6a1f0c54e2d94b7f8a3b5c6d7e8f9012 --record
    """
    settings = at.settings()
    home = IndexHome((index or settings.index).absolute())
    verdict = _judged(at, settings, home, query, known)
    document = verdict.document()
    if record:
        document["record_event"] = _recorded(at, settings, verdict)
    show(document)
    if not verdict.matches and global_options().json:
        raise typer.Exit(INTEGRITY)
    if not verdict.matches:
        raise Untrusted(f"the replay differs in {verdict.field}: {verdict.detail}")


def _judged(
    at: RecorderOptions,
    settings: RecorderSettings,
    home: IndexHome,
    query: ReplayedQuery,
    known: KnownHubOptions,
) -> ReplayVerdict:
    def beyond() -> Beyond | None:
        return _beyond(at, settings, home)

    query.verify_one()
    if query.package is None:
        asked = find_recorded(home, query.requested())
        return rerun.replay_recorded(home, asked, beyond)
    hub_id = key_in_hex("--hub-id", query.hub_id) if query.hub_id else settings.hub.hub_id
    trust = PackageTrust(hub_id=hub_id, identity=_newest(settings, home, hub_id, known))
    facts = PackageFacts(read_package(query.package), trust)
    if trust.identity is None:
        notice(f"{facts.hub.described()}, is the package's own: a newer one may exist")
    return rerun.replay(home, facts.descriptor, facts.digest, facts.checkpoint, facts.hub, beyond)


def _newest(
    settings: RecorderSettings, home: IndexHome, hub_id: bytes, known: KnownHubOptions
) -> HubIdentity | None:
    """The newest identity: given, remembered, or pinned by the recorder's client or index."""
    held = [
        item.identity for item in load_state(ClientDir(settings.hub.client).state).named(hub_id)
    ]
    held += [hub for hub in imports.read_import(home).hubs if hub.hub_id == hub_id]
    given = known.newest(hub_id)
    every = [*held, *([given] if given else [])]
    return reduce(newest_identity, every) if every else None


def _beyond(at: RecorderOptions, settings: RecorderSettings, home: IndexHome) -> Beyond | None:
    """Events after a gap, which only an identity that can read and open imports sees."""
    try:
        with at.open(settings) as reader:
            return read_beyond(reader, home)
    except VeenError as error:
        notice(f"events behind a gap are not read: {error}")
        return None


def _recorded(
    at: RecorderOptions, settings: RecorderSettings, verdict: ReplayVerdict
) -> dict[str, object]:
    with at.emitter(settings) as emitter:
        sent = emitter.send(
            Observation(
                event_type=_REPLAYED,
                subject_id=f"replay@{settings.zone}",
                origin=f"query@{settings.zone}",
                payload=verdict.document(),
                event_time=now_ms(),
            )
        )
    return {
        "stream": settings.streams.stream_of(_REPLAYED).name,
        "seq": sent.receipt.stream_seq,
        "receipt_id": f"rcpt-{sent.receipt.leaf_hash.hex()}",
    }


app = typer.Typer(
    help="Query recorded events; verify results offline, or by running them again.",
    no_args_is_help=True,
)

ResultArgument = Annotated[str, typer.Argument(metavar="RESULT_ID", help="result_id, like r-0123…")]


@app.command()
def submit(
    at: ApiOptions,
    asked: DescriptorOptions,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the query has finished.")
    ] = True,
) -> None:
    """Submit a query; the query and the digest of its result are recorded.

    Prints the digest; get the rows with veen query result, the proof with veen query proof.

    Example: veen query submit --token-file token --stream record/app/http --subject user:1
    """
    with at.open() as api:
        page = api.submit(asked.document())
        names = page.get("result_digest") or page
        if wait:
            await_result(api, names["result_id"], interruptible_sleep)
            page = api.page(names["result_id"], 0, 1)
    if "result_digest" not in page:
        show(page)
        return
    _warn_of_faults(page)
    show({"status": "completed", "record_event": page["record_event"], **page["result_digest"]})


@app.command()
def status(at: ApiOptions, result_id: ResultArgument) -> None:
    """Show the state of a query: pending, running, completed or failed, and why.

    Example: veen query status r-6a1f0c54e2d94b7f8a3b5c6d7e8f9012 --token-file token
    """
    with at.open() as api:
        show(api.status(result_id))


@app.command()
def result(
    at: ApiOptions,
    result_id: ResultArgument,
    offset: Annotated[
        int, typer.Option("--offset", min=0, metavar="N", help="Number of the first row.")
    ] = 0,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help="Number of rows; default: all."),
    ] = None,
) -> None:
    """Print the rows of a result, one JSON object per line.

    If all rows are requested, they are hashed and compared with the digest of the service. Both
    come from the service: use veen query verify to prove them.

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
        raise Untrusted(f"the rows of {result_id} do not match its digest")
    notice(
        f"{hashed.row_count} rows, rows_hash {hashed.rows_hash} as in the digest; unproven, the "
        "service's word, until veen query verify says proven of the package"
    )


@app.command()
def proof(
    at: ApiOptions,
    result_id: ResultArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output file.")],
) -> None:
    """Download the proof package of a result, for veen query verify.

    Example: veen query proof r-6a1f0c54e2d94b7f8a3b5c6d7e8f9012 --token-file token --out p.json
    """
    with at.open() as api:
        raw = fetch_package(api, result_id, interruptible_sleep)
    durable.write(out, raw)
    show({"result_id": result_id, "package": str(out), "bytes": len(raw)})


@app.command()
def verify(
    package: Annotated[
        Path, typer.Argument(metavar="PACKAGE", help="Proof package of veen query proof.")
    ],
    hub_id: Annotated[str, typer.Option("--hub-id", metavar="HEX", help="Expected hub_id.")],
    believe: AnchorTrust,
    known: KnownHubOptions,
    recorder_id: Annotated[
        list[str] | None,
        typer.Option(
            "--recorder-id",
            metavar="HEX",
            help="Accepted client_id of the recorder; repeatable.",
        ),
    ] = None,
) -> None:
    """Verify a proof package offline: signatures, proofs, rows, hashes, ranges.

    The first line is proven (exit code 0), failed (3) or unproven (6), with the reason and what is
    known about missing rows; then each claim: held, failed, or not covered by the package. Without
    --recorder-id, and --hub-identity or --known-hubs, nothing is proven: a key that the package
    calls current may have been retired. Give the evidence of anchors to verify them.

    Example: veen query verify p.json --hub-id 1f3c… --recorder-id 9a4e… --hub-identity hub.cbor
    """
    recorders = frozenset(key_in_hex("--recorder-id", item) for item in recorder_id or ())
    name = key_in_hex("--hub-id", hub_id)
    trust = PackageTrust(
        hub_id=name,
        recorder_ids=recorders,
        identity=known.newest(name),
        origin=known.remembered,
    )
    evidence = read_package(package)
    verdict = check(evidence, trust, believe.checks())
    if verdict.held("hub"):
        known.learn(SignedIdentity(evidence.hub, evidence.hub_signature))
    _report(package, verdict)


app.command()(replay)


class _Pages:
    """All rows of a result, page by page; each page must have the same digest."""

    def __init__(self, api: QueryApi, result_id: str) -> None:
        self.digest: dict[str, Any] = {}
        self._api = api
        self._result_id = result_id

    def rows(self) -> Iterator[dict[str, Any]]:
        offset, more = 0, True
        while more:
            page = self._api.page(self._result_id, offset, _PAGE)
            if self.digest not in ({}, page["result_digest"]):
                raise Untrusted(f"{self._result_id}: the digest differs between pages")
            if not self.digest:
                _warn_of_faults(page)
            self.digest = page["result_digest"]
            for row in page["rows"]:
                _show_row(row)
                yield row
            offset += len(page["rows"])
            more = page["page"]["has_more"]


def _warn_of_faults(page: dict[str, Any]) -> None:
    """Warn of faults in the searched streams; an older service reports none."""
    for fault in page.get("faults", ()):
        notice(
            f"warning: {fault['stream']} has {fault['count']} events of types that belong to other "
            f"streams ({fault['fault']}), first at {fault['first_seq']}"
        )


def _show_row(row: dict[str, Any]) -> None:
    show_one({"row": row}, [json.dumps(row, sort_keys=True, ensure_ascii=False)])


def _report(package: Path, verdict: PackageVerdict) -> None:
    """Show a verdict and exit with the code of its outcome."""
    proven = verdict.outcome is ClaimOutcome.PROVEN
    show({**verdict.document(), "ok": proven}, _lines_of(verdict))
    if proven:
        return
    if global_options().json:
        raise typer.Exit(_EXIT_CODES[verdict.outcome])
    kind = Untrusted if verdict.outcome is ClaimOutcome.FAILED else Unproven
    raise kind(f"{package} is {'refused' if verdict.failed else 'unproven'}: {verdict.reason}")


def _lines_of(verdict: PackageVerdict) -> str:
    width = max(len(claim.state.value) for claim in verdict.claims)
    lines = [
        f"{claim.state.value:{width}}  {claim.name}: {claim.detail}" for claim in verdict.claims
    ]
    held = sum(claim.state is ClaimState.HELD for claim in verdict.claims)
    total = f"{held} held, {len(verdict.failed)} failed, of {len(verdict.claims)} claims"
    return "\n".join([verdict.summary, *lines, total])
