"""``veen query replay``: run a recorded query again, and tell whether the digest is the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Annotated

import typer

from cli.console import manner, notice, show
from cli.failure import INTEGRITY
from cli.options import key_in_hex
from cli.pinned_hub import KnownHubOptions
from cli.query_package import read_package
from cli.recorder_options import RecorderOptions, now_ms
from recorder.emit.observation import Observation
from recorder.index import imports
from recorder.index.home import IndexHome
from recorder.query.package_facts import Facts
from recorder.query.trust import Trust
from recorder.service import replay_recorded, replaying
from recorder.service.replay_beyond import Beyond, read_beyond
from recorder.service.replay_recorded import Wanted
from recorder.service.replaying import ReplayVerdict
from recorder.settings import Settings
from veen.client.state import load
from veen.client.trust import newest
from veen.errors import Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir

_REPLAYED = "query.replayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedQuery:
    """Which query: that of a package, or one whose descriptor and digest were imported."""

    package: Annotated[
        Path | None, typer.Argument(metavar="PACKAGE", help="From veen query proof.")
    ] = None
    query_id: Annotated[
        str | None,
        typer.Option("--query-id", metavar="ID", help="Its descriptor and digest were imported."),
    ] = None
    result_id: Annotated[
        str | None,
        typer.Option("--result-id", metavar="ID", help="The same, by the name of the result."),
    ] = None
    hub_id: Annotated[
        str | None,
        typer.Option("--hub-id", metavar="HEX", help="Whose log; else the settings' hub, or "
                     "whichever hub's import has that id."),
    ] = None  # fmt: skip

    def verify_one(self) -> None:
        given = [one for one in (self.package, self.query_id, self.result_id) if one is not None]
        if len(given) != 1:
            raise typer.BadParameter("give a PACKAGE, --query-id or --result-id, and one of them")

    def wanted(self) -> Wanted:
        """What to look for among imports."""
        hub_id = key_in_hex("--hub-id", self.hub_id) if self.hub_id else None
        if self.query_id is not None:
            return Wanted("query_id", self.query_id, hub_id)
        return Wanted("result_id", self.result_id or "", hub_id)


def replay(
    at: RecorderOptions,
    query: ReplayedQuery,
    known: KnownHubOptions,
    index: Annotated[
        Path | None, typer.Option("--index", metavar="DIR", help="Else [index] of the settings.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Record the verdict in record/query/replays.")
    ] = False,
) -> None:
    """Run a query again over an index here, and tell whether its digest is the same.

    Every place that was searched is read and verified again, so an omitted row shows. Where events
    are missing here, the ranges are named; whoever acts must be able to read and open the import
    streams for what stands behind a gap not to be counted as missing.

    Example: veen query replay --result-id r-6a1f0c54e2d94b7f8a3b5c6d7e8f9012 --record
    """
    settings = at.settings()
    home = IndexHome((index or settings.index).absolute())
    verdict = _judged(at, settings, home, query, known)
    document = verdict.document()
    if record:
        document["record_event"] = _recorded(at, settings, verdict)
    show(document)
    if not verdict.matches and manner().json:
        raise typer.Exit(INTEGRITY)
    if not verdict.matches:
        raise Untrusted(f"the replay differs in {verdict.field}: {verdict.told}")


def _judged(
    at: RecorderOptions,
    settings: Settings,
    home: IndexHome,
    query: ReplayedQuery,
    known: KnownHubOptions,
) -> ReplayVerdict:
    def beyond() -> Beyond | None:
        return _beyond(at, settings, home)

    query.verify_one()
    if query.package is None:
        asked = replay_recorded.find(home, query.wanted())
        return replaying.replay_recorded(home, asked, beyond)
    hub_id = key_in_hex("--hub-id", query.hub_id) if query.hub_id else settings.hub.hub_id
    trust = Trust(hub_id=hub_id, identity=_newest(settings, home, hub_id, known))
    facts = Facts(read_package(query.package), trust)
    if trust.identity is None:
        notice(f"{facts.hub.described()}, is the package's own: a newer one may exist")
    return replaying.replay(
        home, facts.descriptor, facts.digest, facts.checkpoint, facts.hub, beyond
    )


def _newest(
    settings: Settings, home: IndexHome, hub_id: bytes, known: KnownHubOptions
) -> HubIdentity | None:
    """The newest identity given, remembered, or pinned by the recorder's client or its index."""
    held = [one.identity for one in load(ClientDir(settings.hub.client).state).named(hub_id)]
    held += [one for one in imports.read(home).hubs if one.hub_id == hub_id]
    given = known.newest(hub_id)
    every = [*held, *([given] if given else [])]
    return reduce(newest, every) if every else None


def _beyond(at: RecorderOptions, settings: Settings, home: IndexHome) -> Beyond | None:
    """What stands behind a gap is for those alone who may read and open imports."""
    try:
        with at.open(settings) as reader:
            return read_beyond(reader, home)
    except VeenError as error:
        notice(f"what stands here behind a gap is not looked at: {error}")
        return None


def _recorded(at: RecorderOptions, settings: Settings, verdict: ReplayVerdict) -> dict[str, object]:
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
