"""``veen bridge verify``: verify carriers on a medium, without a hub or a network."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from bridge.carrier.directory import BagPath, carrier_name
from bridge.carrier.medium import carriers
from bridge.carrier.verify import VerifyContext, VerifyReport, check_carrier, transcript
from bridge.errors import ADVICE, Level
from bridge.importer.precheck import Precheck, Prechecked
from bridge.settings import BridgeSettings, load
from bridge.trust import TrustStore
from cli.bridge_options import BagsArgument, ZoneKeyOption, zone_keys
from cli.console import global_options, notice, show, show_text, watching
from cli.errors import INTEGRITY, fail
from cli.hub_checkpoint import HubIdentityOption
from cli.options import retry_policy, runtime
from veen.client.connect import tls_context
from veen.client.hub_api import HubApi
from veen.client.transport import Transport
from veen.identity_store import read_signed
from veen.system import durable
from veen.system.environment import prefixed

_DAY_SEC: Final = 86_400
ScratchOption = Annotated[
    Path | None,
    typer.Option("--scratch", metavar="DIR", help="Directory to unpack in; default: the system's."),
]

PinnedOption = Annotated[
    Path | None,
    typer.Option(
        "--trust", metavar="DIR", help="Directory of pinned hubs and exporters, for 'valid'."
    ),
]
TranscriptOption = Annotated[
    Path | None,
    typer.Option("--transcript", metavar="FILE", help="Write a transcript of the verification."),
]


def verify(
    bags: BagsArgument,
    level: Annotated[
        Level,
        typer.Option("--level", help="Depth of verification; each level includes those before it."),
    ] = Level.VALID,
    trust: PinnedOption = None,
    transcript_file: TranscriptOption = None,
    hub_identity: HubIdentityOption = None,
    key: ZoneKeyOption = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, metavar="N", help="Number of verifying processes.")
    ] = 1,
    scratch: ScratchOption = None,
    max_age: Annotated[
        int | None,
        typer.Option("--max-age", min=0, metavar="DAYS", help="Maximum age of the checkpoint."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings of the importing zone."),
    ] = None,
) -> None:
    """Verify that every carrier on the media is complete, intact and valid.

    Valid means that all signatures and proofs hold. Writes only the transcript, and needs no
    network. Exits with 3 if a carrier is refused. Shows the age of the checkpoint, which expires
    only with --max-age. A newer identity of the hub, from --hub-identity, shows which keys were
    retired.

    With --config, uses the trust and keys of the importing zone, and verifies that each valid
    carrier can be imported there: its stream has a target and is not frozen, the bridge has a
    capability that the hub accepts, and the disk has enough space. This queries the hub.

    Example: veen bridge verify /media/usb --trust trust --transcript check.txt
    """
    settings = None if config is None else load(config)
    if settings is not None and settings.importing is not None:
        trust, key = trust or settings.trust, key or list(settings.importing.zone_keys)
    if level is Level.VALID and trust is None:
        raise typer.BadParameter(
            "--trust is needed to verify signatures; give it, or use --level intact"
        )
    store = _trusted(trust, hub_identity)
    carrier_sets = carriers([bag.absolute() for bag in bags])
    with room(scratch) as place:
        context = VerifyContext(
            trust=store,
            scratch=place,
            privates=zone_keys(key),
            workers=workers,
            now=runtime().clock(),
            max_age_sec=None if max_age is None else max_age * _DAY_SEC,
        )
        reports = list(_checked(carrier_sets, level, context))
    _show_report(
        carrier_sets, reports, prechecked(settings, carrier_sets, reports), transcript_file
    )


def _trusted(trust: Path | None, hub_identity: Path | None) -> TrustStore:
    store = TrustStore.read(trust) if trust else TrustStore()
    if hub_identity is None:
        return store
    return store.with_identity(read_signed(hub_identity).identity)


@contextmanager
def room(given: Path | None) -> Iterator[Path]:
    """A private temporary directory."""
    with tempfile.TemporaryDirectory(prefix="veen-bridge-", dir=given) as place:
        yield Path(place)


def _checked(
    value: list[tuple[BagPath, ...]], level: Level, context: VerifyContext
) -> Iterator[VerifyReport]:
    watch = watching()
    for number, bags in enumerate(value, 1):
        item = prefixed(watch, f"carrier {number} of {len(value)}")
        yield check_carrier(bags, level, replace(context, watch=item))


def _show_report(
    value: list[tuple[BagPath, ...]],
    reports: Sequence[VerifyReport],
    checks: Sequence[Prechecked | None],
    transcript_file: Path | None,
) -> None:
    text = "\n".join(transcript(report) for report in reports)
    if transcript_file is not None:
        durable.write(transcript_file.absolute(), text.encode())
    refused = [report.refusal for report in reports if report.refusal is not None]
    if global_options().json:
        rows = [_row(bags, report) for bags, report in zip(value, reports, strict=True)]
        for row, check in zip(rows, checks, strict=True):
            row.update({} if check is None else _import_row(check))
        show({"ok": not refused, "carriers": rows, "refused": len(refused)})
    else:
        for item in refused:
            fail(item)
        show_text(text.splitlines())
        for bags, check in zip(value, checks, strict=True):
            if check is not None and (check.obstacle or check.warning):
                notice(f"{carrier_name(bags[0].name)}: {check.obstacle or check.warning}")
    if refused:
        raise typer.Exit(INTEGRITY)


def prechecked(
    settings: BridgeSettings | None,
    value: Sequence[Sequence[BagPath]],
    reports: Sequence[VerifyReport],
) -> list[Prechecked | None]:
    """The precheck of each valid carrier; None if it was not requested or does not apply."""
    if settings is None:
        return [None] * len(reports)
    with closing(
        Transport(
            settings.hub.url,
            runtime=runtime(),
            retry_policy=retry_policy(),
            tls=tls_context(settings.hub),
        )
    ) as transport:
        check = Precheck(settings, HubApi(transport))
        return [
            None if report.refusal is not None else check.of(report, bags)
            for bags, report in zip(value, reports, strict=True)
        ]


def _import_row(check: Prechecked) -> dict[str, Any]:
    return {
        "code": check.code or None,
        "obstacle": check.obstacle or None,
        "warning": check.warning or None,
    }


def _row(bags: Sequence[BagPath], report: VerifyReport) -> dict[str, Any]:
    entry = report.ledger.tail[-1] if report.ledger else None
    refusal = report.refusal
    return {
        "bags": [str(bag) for bag in bags],
        "asked": report.asked.value,
        "held": [item.value for item in report.held],
        "verdict": report.verdict,
        "reason": str(refusal) if refusal else None,
        "seq": refusal.seq if refusal else None,
        "offset": refusal.offset if refusal else None,
        "todo": ADVICE[refusal.fault] if refusal else None,
        "checkpoint_at": report.checkpoint.created_at if report.checkpoint else None,
        "age_sec": report.age_sec,
        "hub_identity": report.hub.number if report.hub else None,
        "hub_identity_since": report.hub.current.valid_from if report.hub else None,
        "n": entry.n if entry else None,
        "bundle_id": entry.bundle_id.hex() if entry and entry.bundle_id else None,
        "stream": entry.stream if entry else None,
        "from_seq": entry.from_seq if entry else None,
        "to_seq": entry.to_seq if entry else None,
        "notes": report.notes,
    }
