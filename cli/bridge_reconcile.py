"""``veen bridge reconcile``: what was exported against what is here (AGB0 4.7)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from bridge.audit import AuditWriter
from bridge.audit_events import Reconciled
from bridge.identities import open_client, recipient
from bridge.reconcile import fact_file
from bridge.reconcile.collect import Collected, Nobody, with_more
from bridge.reconcile.kept import Places, keep
from bridge.reconcile.reconcile import reconcile as reconciled
from bridge.reconcile.report import Report
from bridge.reconcile.report_text import text
from bridge.reconcile.stream_report import Class
from bridge.settings import DEFAULT_PATH, Settings, load
from cli.bridge_cover import cover_of
from cli.bridge_options import BridgeConfigOption, OperatorOption, ZoneKeyOption, operator_of
from cli.bridge_reading import CarriersOption, collected, reader_of
from cli.console import manner, notice, show, show_text
from cli.failure import INTEGRITY, Refused
from cli.options import key_in_hex, patience, surroundings
from veen import durable, sign
from veen.client.client import Client

NOT_WHOLE: Final = 13
"""The exit code of a reconciliation that has found something to be done, and nothing forged."""

OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="The signed report, canonical JSON.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsOptions:
    """What is reconciled: the facts of this zone and of others, up to which checkpoint."""

    carrier: CarriersOption = None
    facts: Annotated[
        list[Path] | None,
        typer.Option("--facts", metavar="FILE", help="Facts from elsewhere; repeatable."),
    ] = None
    facts_out: Annotated[
        Path | None,
        typer.Option("--facts-out", metavar="FILE", help="Keep the facts, for another zone."),
    ] = None
    collect: Annotated[
        bool, typer.Option("--collect", help="Only keep the facts, for a Spark job.")
    ] = False
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="HEX",
            help="The checkpoint of Z1 to go by (C1), one for a hub; else its newest.",
        ),
    ] = None
    key: ZoneKeyOption = None

    def collected(self, settings: Settings, reader: Client) -> Collected:
        """All of them, kept where they are wanted; Refused where a checkpoint is not among them."""
        chosen = frozenset(key_in_hex("--checkpoint", one) for one in self.checkpoint or ())
        found = collected(settings, reader, self.carrier, self.key, Nobody(), chosen)
        told = found.facts
        if self.facts:
            told = with_more(told, fact_file.read_files(self.facts), chosen)
        absent = chosen - {one.checkpoint_id for one in told.sources}
        if absent:
            raise Refused(
                f"no carrier and no fact brings checkpoint {min(absent).hex()}; C1 can be one that "
                "a carrier in archive/ or under --carrier was exported by"
            )
        if self.facts_out is not None:
            lines = b"".join(one + b"\n" for one in fact_file.lines(told))
            durable.write(self.facts_out.absolute(), lines)
        return Collected(told, found.refused)


def reconcile(
    given: FactsOptions,
    config: BridgeConfigOption = DEFAULT_PATH,
    out: OutOption = None,
    picture: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw a lane for each stream.")
    ] = None,
    gaps: Annotated[
        Path | None,
        typer.Option("--gaps", metavar="DIR", help="Write gap-<hub>.json for the exporter."),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Enter the result in this zone's audit log.")
    ] = False,
    operator: OperatorOption = None,
) -> None:
    """Tell of every exported event whether it is here, kept out, waiting or missing.

    Nothing goes back to the other zone: what was lost shows in the ledgers of later carriers, and
    in the other side's audit log, which is carried too. Exit code 0 says that all is here, 13 that
    something is to be done, 3 that something must never have happened.

    Example: veen bridge reconcile --config bridge.toml --out report.json --svg report.svg
    """
    if given.collect and given.facts_out is None:
        raise typer.BadParameter("--collect goes with --facts-out FILE")
    settings = load(config)
    with reader_of(settings) as reader:
        found = given.collected(settings, reader)
        signer = reader.session.identity.id_sign
    for one in found.refused:
        notice(f"a carrier tells nothing: {one}")
    if given.collect:
        show({"facts": str(given.facts_out), "refused": len(found.refused)})
        return
    report = reconciled(found.facts)
    keep(report, signer, Places(out=out, picture=picture, gaps=gaps))
    if record:
        _record(settings, report, signer, operator_of(operator))
        _cover(settings)
    _tell(report)


def _record(settings: Settings, report: Report, signer: sign.PrivateKey, operator: str) -> None:
    with open_client(
        settings.hub, settings.audit, surroundings=surroundings(), patience=patience()
    ) as client:
        client.meet()
        writer = AuditWriter(
            client,
            settings.zone.audit_log,
            origin=settings.name,
            recipient=recipient(settings.audit_reader, int(time.time())),
            clock=lambda: time.time_ns() // 1_000_000,
        )
        writer.settle()
        writer.record(
            Reconciled(
                operator=operator,
                report=report.digest(),
                signer=signer.public,
                whole=report.is_whole,
                closed_before=report.closed_before,
                **{one.value: report.count(one) for one in Class},
            )
        )


def _cover(settings: Settings) -> None:
    """Where imports are covered by an anchored checkpoint, so is the entry of a report."""
    cover = cover_of(settings) if settings.importing is not None else None
    if cover is not None:
        found = cover()
        anchored = f", anchored as {found.anchor}" if found.anchor else ""
        checkpoint_id = found.checkpoint.checkpoint_id.hex()
        notice(found.trouble or f"the entry is covered by checkpoint {checkpoint_id}{anchored}")


def _tell(report: Report) -> None:
    if manner().json:
        show({"ok": report.is_whole, **report.document()})
    else:
        show_text(text(report).splitlines())
    if report.has_alarms:
        raise typer.Exit(INTEGRITY)
    if not report.is_whole:
        raise typer.Exit(NOT_WHOLE)
