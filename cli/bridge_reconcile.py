"""``veen bridge reconcile``: compare what was exported with what is here (AGB0 4.7)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bridge.audit_log import AuditWriter, ReconciledEntry, RecordedEntry
from bridge.carrier.verify import VerifyContext
from bridge.connect import open_bridge_client
from bridge.reconcile.collect import (
    Carried,
    Collected,
    Listener,
    NullCollector,
    collect_offline,
    collect_online,
)
from bridge.reconcile.collect_logs import PlacedImport
from bridge.reconcile.facts import ForeignFact, fact_lines, merge, read_fact_files
from bridge.reconcile.reconcile import reconcile as reconciled
from bridge.reconcile.render import ReportPlaces, keep, text
from bridge.reconcile.report import Class, ReconcileReport
from bridge.settings import DEFAULT_PATH, BridgeSettings, BridgeZone, load
from bridge.trust import TrustStore
from cli.bridge_options import (
    BridgeConfigOption,
    OperatorOption,
    ZoneKeyOption,
    operator_of,
    zone_keys,
)
from cli.bridge_status import cover_of
from cli.console import global_options, notice, progress, show, show_text
from cli.errors import INTEGRITY
from cli.options import key_in_hex, retry_policy, runtime
from veen.client.client import Client
from veen.client.connect import recipient
from veen.crypto import SigningKey
from veen.errors import Refused
from veen.system import durable
from veen.system.environment import Progress

CarriersOption = Annotated[
    list[Path] | None,
    typer.Option("--carrier", metavar="DIR", help="Carrier besides those in archive/; repeatable."),
]
NOT_WHOLE: Final = 13
"""The exit code of a reconciliation with gaps and without alarms."""


@contextmanager
def reader_of(settings: BridgeSettings) -> Iterator[Client]:
    """A client to read with: offline the reader, online the bridge's own identity."""
    identity = settings.reader if settings.zone is BridgeZone.OFFLINE else settings.bridge
    if identity is None:
        raise Refused("the settings have no [reader]; it is needed to read what was imported")
    with open_bridge_client(
        settings.hub,
        identity,
        runtime=runtime(),
        retry_policy=retry_policy(),
        keys=settings.reader_keys,
    ) as client:
        client.meet()
        yield client


def collected(
    settings: BridgeSettings,
    reader: Client,
    carrier: list[Path] | None,
    key: list[Path] | None,
    listener: Listener,
    chosen: Collection[bytes] = (),
) -> Collected:
    """The facts of a zone; ``chosen`` are the ids of checkpoints to use as C1."""
    if settings.zone is BridgeZone.ONLINE:
        return collect_online(settings, reader, chosen)
    own = settings.importing.zone_keys if settings.importing else ()
    with tempfile.TemporaryDirectory(prefix="veen-reconcile-") as scratch:
        context = VerifyContext(
            trust=TrustStore.read(settings.trust),
            scratch=Path(scratch),
            privates=zone_keys([*own, *(key or ())]),
        )
        media = [path.absolute() for path in carrier or ()]
        with progress("reading", "events") as report:
            watched = Watched(listener, report)
            return collect_offline(settings, reader, Carried(context, chosen), media, watched)


class Watched:
    """Reports the number of events and entries read, and passes them on."""

    def __init__(self, listener: Listener, report: Progress) -> None:
        self._listener = listener
        self._report = report
        self._count = 0

    def placed(self, import_: PlacedImport | ForeignFact) -> None:
        self._describe()
        self._listener.placed(import_)

    def online(self, recorded_entry: RecordedEntry) -> None:
        self._listener.online(recorded_entry)

    def offline(self, recorded_entry: RecordedEntry) -> None:
        self._describe()
        self._listener.offline(recorded_entry)

    def _describe(self) -> None:
        self._count += 1
        self._report(self._count, None)


OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write the signed report, as canonical JSON."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsOptions:
    """The inputs of a reconciliation: facts of this zone and others, and its checkpoint."""

    carrier: CarriersOption = None
    facts: Annotated[
        list[Path] | None,
        typer.Option("--facts", metavar="FILE", help="Facts file of another run; repeatable."),
    ] = None
    facts_out: Annotated[
        Path | None,
        typer.Option(
            "--facts-out", metavar="FILE", help="Write the facts to this file, for another zone."
        ),
    ] = None
    collect: Annotated[
        bool, typer.Option("--collect", help="Only write the facts, for a Spark job.")
    ] = False
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="HEX",
            help="Checkpoint of Z1 to reconcile against (C1), per hub; default: the newest.",
        ),
    ] = None
    key: ZoneKeyOption = None

    def collected(self, settings: BridgeSettings, reader: Client) -> Collected:
        """All facts, written to a file if requested; Refused if a chosen checkpoint is missing."""
        chosen = frozenset(
            key_in_hex("--checkpoint", fact_file) for fact_file in self.checkpoint or ()
        )
        own = collected(settings, reader, self.carrier, self.key, NullCollector(), chosen)
        facts = own.facts
        if self.facts:
            facts = merge(facts, read_fact_files(self.facts), chosen)
        absent = chosen - {source.checkpoint_id for source in facts.sources}
        if absent:
            raise Refused(
                f"no carrier and no fact brings checkpoint {min(absent).hex()}; C1 can be one that "
                "a carrier in archive/ or under --carrier was exported by"
            )
        if self.facts_out is not None:
            lines = b"".join(fact_line + b"\n" for fact_line in fact_lines(facts))
            durable.write(self.facts_out.absolute(), lines)
        return Collected(facts, own.refused)


def reconcile(
    given: FactsOptions,
    config: BridgeConfigOption = DEFAULT_PATH,
    out: OutOption = None,
    picture: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Write a chart with a row per stream."),
    ] = None,
    gaps: Annotated[
        Path | None,
        typer.Option("--gaps", metavar="DIR", help="Write gap-<hub>.json for the exporter."),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Record the result in the audit log of this zone.")
    ] = False,
    operator: OperatorOption = None,
) -> None:
    """Report for every exported event whether it is imported, withheld, waiting or missing.

    Nothing is sent to the other zone: losses show in the ledgers of later carriers, and in the
    audit log of the other zone, which is exported too. Exits with 0 if everything is imported, 13
    if action is needed, 3 if an invariant is violated.

    Example: veen bridge reconcile --config bridge.toml --out report.json --svg report.svg
    """
    if given.collect and given.facts_out is None:
        raise typer.BadParameter("--collect goes with --facts-out FILE")
    settings = load(config)
    with reader_of(settings) as reader:
        collected = given.collected(settings, reader)
        signer = reader.session.identity.id_sign
    for item in collected.refused:
        notice(f"a carrier was not read: {item}")
    if given.collect:
        show({"facts": str(given.facts_out), "refused": len(collected.refused)})
        return
    report = reconciled(collected.facts)
    keep(report, signer, ReportPlaces(out=out, picture=picture, gaps=gaps))
    if record:
        _record(settings, report, signer, operator_of(operator))
        _cover(settings)
    _show_report(report)


def _record(
    settings: BridgeSettings, report: ReconcileReport, signer: SigningKey, operator: str
) -> None:
    with open_bridge_client(
        settings.hub, settings.audit, runtime=runtime(), retry_policy=retry_policy()
    ) as client:
        client.meet()
        writer = AuditWriter(
            client,
            settings.zone.audit_log,
            origin=settings.name,
            recipient=recipient(settings.audit_reader, int(time.time()), "audit.reader"),
            clock=lambda: time.time_ns() // 1_000_000,
        )
        writer.settle()
        writer.record(
            ReconciledEntry(
                operator=operator,
                report=report.digest(),
                signer=signer.public,
                whole=report.is_whole,
                closed_before=report.closed_before,
                **{item.value: report.count(item) for item in Class},
            )
        )


def _cover(settings: BridgeSettings) -> None:
    """Cover the audit entry of a report by an anchored checkpoint, if imports are."""
    cover = cover_of(settings) if settings.importing is not None else None
    if cover is not None:
        covered = cover()
        anchored = f", anchored as {covered.anchor}" if covered.anchor else ""
        checkpoint_id = covered.checkpoint.checkpoint_id.hex()
        notice(covered.trouble or f"the entry is covered by checkpoint {checkpoint_id}{anchored}")


def _show_report(report: ReconcileReport) -> None:
    if global_options().json:
        show({"ok": report.is_whole, **report.document()})
    else:
        show_text(text(report).splitlines())
    if report.has_alarms:
        raise typer.Exit(INTEGRITY)
    if not report.is_whole:
        raise typer.Exit(NOT_WHOLE)
