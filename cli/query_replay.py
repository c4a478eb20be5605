"""``veen query replay``: run a recorded query again, and tell whether the digest is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.console import manner, show
from cli.failure import INTEGRITY
from cli.options import key_in_hex
from cli.recorder_options import RecorderOptions, now_ms
from recorder.emit.observation import Observation
from recorder.index.home import IndexHome
from recorder.query.package import Package
from recorder.query.package_facts import Facts
from recorder.service.replaying import ReplayVerdict
from recorder.service.replaying import replay as run_again
from recorder.settings import Settings
from veen.errors import Untrusted

_REPLAYED = "query.replayed"


def replay(
    at: RecorderOptions,
    package: Annotated[Path, typer.Argument(metavar="PACKAGE", help="From veen query proof.")],
    hub_id: Annotated[
        str | None,
        typer.Option("--hub-id", metavar="HEX", help="Whose log; else the settings' hub."),
    ] = None,
    index: Annotated[
        Path | None, typer.Option("--index", metavar="DIR", help="Else [index] of the settings.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Record the verdict in record/query/replays.")
    ] = False,
) -> None:
    """Run a query again over an index here, and tell whether its digest is the same.

    Every place that was searched is read and verified again, so an omitted row shows. Where events
    are missing here, the ranges are named.

    Example: veen query replay p.json --config recorder.toml
    """
    settings = at.settings()
    wanted = key_in_hex("--hub-id", hub_id) if hub_id else settings.hub.hub_id
    facts = Facts(Package.decode(package.read_bytes()), wanted)
    home = IndexHome((index or settings.index).absolute())
    verdict = run_again(home, facts.descriptor, facts.digest, facts.checkpoint, facts.hub)
    document = verdict.document()
    if record:
        document["record_event"] = _recorded(at, settings, verdict)
    show(document)
    if not verdict.matches and manner().json:
        raise typer.Exit(INTEGRITY)
    if not verdict.matches:
        raise Untrusted(f"the replay differs in {verdict.field}: {verdict.told}")


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
