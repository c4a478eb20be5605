"""``veen bridge import``, ``approve``, ``receipt`` and ``release``: the importing side of a
bridge.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

from bridge.importer.approvals import APPROVE, REJECT, Approval, decide
from bridge.importer.completion import Covering
from bridge.importer.directory import ImportDirectory
from bridge.importer.outcome import ImportOutcome, ImportState
from bridge.importer.reason import quarantined
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.release import release as released
from bridge.importer.run import ImportRequest, ImportRunResult, importing, run_import
from bridge.importer.status import import_status, ledger_is_stale
from bridge.settings import DEFAULT_PATH, BridgeSettings, load
from cli.bridge_options import NOTHING_TO_DO, BridgeConfigOption, OperatorOption, operator_of
from cli.bridge_status import cover_of
from cli.console import global_options, notice, show, show_text, watching
from cli.options import ClientOption, PassphraseFileOption, passphrase_of, retry_policy, runtime
from veen.errors import Refused
from veen.keystore.directory import ClientDir
from zone.imports import take_up

_REBUILD: Final = (
    "the ledger is lost, or older than the last import: veen bridge import --rebuild-ledger"
)
_MOST_QUARANTINED: Final = 25
"""How many entries are shown; all are counted."""
_HEX: Final = re.compile(r"[0-9a-f]{8,64}")

BundleArgument = Annotated[
    str, typer.Argument(metavar="BUNDLE", help="bundle_id, or at least its first 8 digits.")
]
UNCOVERED = 14
"""Exit codes beside the common ones; the most severe of a run counts."""
_NOTHING: Final = "none"
_ID_DIGITS: Final = 64


def approve(
    bundle: BundleArgument,
    client: ClientOption,
    config: BridgeConfigOption = DEFAULT_PATH,
    reject: Annotated[
        bool, typer.Option("--reject", help="Reject the bundle, which goes to quarantine.")
    ] = False,
    passphrase_file: PassphraseFileOption = None,
) -> None:
    """Approve or reject a bundle that waits for approvals.

    Each approver has a client directory, and decides once about a bundle. With all signatures,
    veen bridge import imports it.

    Example: veen bridge approve 4f2a90c1 --config bridge.toml --client ./alice
    """
    import_dir = _import_dir(load(config))
    held = [
        item
        for item in import_status(import_dir).unfinished
        if item.state == ImportState.BLOCKED.value
    ]
    bundle_id = _one(bundle, {item.bundle_id.hex() for item in held}, "waits for approvals")
    directory = ClientDir(client.absolute())
    key = directory.open(passphrase_of(directory, passphrase_file)).client
    decision = REJECT if reject else APPROVE
    path = decide(import_dir.approvals, Approval.of(key, bytes.fromhex(bundle_id), decision))
    show(
        {
            "bundle_id": bundle_id,
            "decision": decision,
            "approver": key.public.hex(),
            "file": str(path),
            "next": "veen bridge import",
        }
    )


def receipt(
    bundle: BundleArgument,
    config: BridgeConfigOption = DEFAULT_PATH,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the receipt with a QR code.")
    ] = None,
) -> None:
    """Print the receipt of an import, with six words for two people to compare.

    Example: veen bridge receipt 4f2a90c1 --config bridge.toml --svg receipt.svg
    """
    folder = _import_dir(load(config)).receipts
    names = {path.stem for path in folder.glob("*.txt")} if folder.is_dir() else set()
    bundle_id = _one(bundle, names, "has a receipt here")
    text = (folder / f"{bundle_id}.txt").read_text()
    if svg is not None:
        svg.write_text((folder / f"{bundle_id}.svg").read_text())
    words = next(line[12:] for line in text.splitlines() if line.startswith("Words"))
    show({"bundle_id": bundle_id, "words": words, "text": text}, text)


def offline_status(settings: BridgeSettings) -> None:
    """Show the status of the importing side, for ``veen bridge status``."""
    import_dir = _import_dir(settings)
    status_ = import_status(import_dir)
    outbox = ClientDir(settings.bridge.client).outbox
    is_stale = ledger_is_stale(import_dir.ledger, outbox)
    next_command = _REBUILD if is_stale else status_.next_command()
    show(
        {
            "zone": settings.name,
            "inbox": status_.inbox,
            "bundles": status_.bundles,
            "unclosed": status_.unclosed,
            "uncovered": status_.uncovered,
            "streams": [
                {
                    "stream": stream.stream.name,
                    "hub": stream.stream.source_hub_id.hex(),
                    "held": ",".join(f"{span.first}..{span.last}" for span in stream.held) or None,
                    "frozen_at": stream.frozen_at,
                }
                for stream in status_.streams
            ],
            "unfinished": [
                {"bundle_id": item.bundle_id.hex(), "state": item.state, "detail": item.detail}
                for item in status_.unfinished
            ],
            **_quarantine(import_dir),
            "next": next_command,
        }
    )


def _quarantine(import_dir: ImportDirectory) -> dict[str, Any]:
    """The newest entries of the quarantine, if it is not empty."""
    newest, total = quarantined(import_dir.quarantine(""), _MOST_QUARANTINED)
    if not newest:
        return {}
    rows = [
        {"path": str(carrier.path), "code": carrier.code, "detail": carrier.detail}
        for carrier in newest
    ]
    return {"quarantined": total, "quarantine": rows}


def _import_dir(settings: BridgeSettings) -> ImportDirectory:
    return ImportDirectory(importing(settings).state)


def verify_prefix(text: str) -> None:
    if not _HEX.fullmatch(text):
        raise typer.BadParameter(f"{text!r}: expected 8 to 64 hex digits of a bundle_id")


def _one(prefix: str, known: set[str], what: str) -> str:
    verify_prefix(prefix)
    matches = sorted(item for item in known if item.startswith(prefix))
    if len(matches) != 1:
        count = "no bundle" if not matches else f"{len(matches)} bundles"
        raise Refused(f"{count} of id {prefix} {what}; see veen bridge status")
    return matches[0]


DUPLICATE, WAITING, QUARANTINED, AUDIT_PENDING, PARTIAL, BLOCKED = range(7, 13)

_GRAVITY: Final = (
    (ImportState.PARTIAL, PARTIAL),
    (ImportState.QUARANTINED, QUARANTINED),
    (ImportState.REFUSED, QUARANTINED),
    (ImportState.REJECTED, QUARANTINED),
    (ImportState.FROZEN, BLOCKED),
    (ImportState.BLOCKED, BLOCKED),
    (ImportState.WAITING, WAITING),
    (ImportState.INCOMPLETE, WAITING),
    (ImportState.IMPORTED, 0),
    (ImportState.HEARTBEAT, 0),
    (ImportState.DUPLICATE, DUPLICATE),
)


MediumOption = Annotated[
    list[Path] | None,
    typer.Option("--medium", metavar="DIR", help="Mounted medium; repeatable for a set."),
]
AcceptGapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-gap", metavar="BUNDLE", help="Import this bundle despite a gap before it."
    ),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="BUNDLE", help="Import only this bundle; or: none."),
]
RejectOption = Annotated[
    list[str] | None,
    typer.Option("--reject", metavar="BUNDLE", help="Quarantine this bundle; repeatable."),
]
UnapprovedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unapproved", metavar="BUNDLE", help="Audit that the approval of this bundle was refused."
    ),
]
ReasonOption = Annotated[
    str,
    typer.Option(
        "--reason", metavar="TEXT", help="Reason for --accept-gap, --reject, --unapproved; audited."
    ),
]


def import_(
    config: BridgeConfigOption = DEFAULT_PATH,
    medium: MediumOption = None,
    accept_gap: AcceptGapOption = None,
    only: OnlyOption = None,
    reject: RejectOption = None,
    unapproved: UnapprovedOption = None,
    reason: ReasonOption = "",
    rebuild: Annotated[
        bool, typer.Option("--rebuild-ledger", help="Rebuild the ledger from the logs first.")
    ] = False,
    operator: OperatorOption = None,
) -> None:
    """Import carriers from the inbox and the media, each event exactly once.

    The import of a bundle is atomic and idempotent: it may be stopped or killed at any time; run
    it again, and interrupted imports are completed first. A bundle behind a gap waits until the
    gap is closed; an invalid one is moved to quarantine/ with the reason. With --only or --reject,
    nothing but the bundles of --only is imported. Use --unapproved if an approval was forged.

    Exit codes: 0 imported, 6 nothing to do, 7 only duplicates, 8 waiting or incomplete, 9
    quarantined, rejected or refused, 10 the audit entry is stored but not in the log yet, 11 the
    hub accepted only a part, 12 blocked by approvals or a frozen stream, 14 imported, but the
    checkpoint, the anchor or the recorder event that the settings require is pending.

    Example: veen bridge import --config bridge.toml --medium /media/usb
    """
    if (accept_gap or reject or unapproved) and not reason:
        raise typer.BadParameter(
            "--accept-gap, --reject and --unapproved need --reason: it is written to the audit log"
        )
    for item in (*(accept_gap or ()), *(only or ()), *(reject or ())):
        if item != _NOTHING:
            verify_prefix(item)
    order = ImportRequest(
        operator=operator_of(operator),
        media=tuple(path.absolute() for path in medium or ()),
        accepted=tuple(accept_gap or ()),
        only=tuple(only or ()) if only or reject or unapproved else None,
        rejected=tuple(reject or ()),
        unapproved=tuple(_whole_id(item) for item in unapproved or ()),
        reason=reason,
    )
    run = _run(load(config), order, rebuild=rebuild)
    # The index follows with the current keys of a hub that was pinned again.
    take_up(config)
    _show(run)


def _whole_id(text: str) -> bytes:
    verify_prefix(text)
    if len(text) != _ID_DIGITS:
        raise typer.BadParameter(
            f"--unapproved {text!r}: expected a whole bundle_id, 64 hex digits"
        )
    return bytes.fromhex(text)


def _run(settings: BridgeSettings, order: ImportRequest, *, rebuild: bool) -> ImportRunResult:
    cover, watch = cover_of(settings), watching()
    with _stoppable():
        if rebuild:
            ledger = rebuild_ledger(settings, order, runtime(), retry_policy(), watch)
            notice(f"the ledger was rebuilt: {ledger.bundles} bundles, {ledger.events} events")
        return run_import(
            settings, order, runtime(), retry_policy=retry_policy(), watch=watch, cover=cover
        )


def _show(result: ImportRunResult) -> None:
    outcomes = result.outcomes
    if not global_options().json:
        show_text(_line(outcome) for outcome in outcomes)
    count = sum(outcome.imported for outcome in outcomes if outcome.state is ImportState.IMPORTED)
    document: dict[str, Any] = {
        "imported_events": count,
        "carriers": [_document(outcome) for outcome in outcomes],
        "audit_pending": str(result.pending) if result.pending else None,
        "checkpoint": _covering(result.covering),
        "unrecorded": result.unrecorded,
    }
    if result.pending is not None:
        show(document, f"not done: {result.pending}")
        raise typer.Exit(AUDIT_PENDING)
    show(document, f"{count} events imported" if outcomes else "nothing to do: no carrier is here")
    if result.covering is not None and result.covering.trouble is not None:
        again = "" if result.covering.covered else "; run veen bridge import again"
        notice(f"{result.covering.trouble}{again}")
    if result.unrecorded is not None:
        notice(f"{result.unrecorded}; run veen bridge import again")
    code = _exit_code(result)
    if code:
        raise typer.Exit(code)


def _exit_code(result: ImportRunResult) -> int:
    states = {outcome.state for outcome in result.outcomes}
    value = next((code for state, code in _GRAVITY if state in states), NOTHING_TO_DO)
    if result.unrecorded is not None and value in (0, DUPLICATE, NOTHING_TO_DO):
        return UNCOVERED
    if result.covering is None or value not in (0, DUPLICATE, NOTHING_TO_DO):
        return value
    return UNCOVERED if result.covering.trouble is not None else 0


def _covering(covering: Covering | None) -> dict[str, Any] | None:
    if covering is None:
        return None
    made = covering.covered
    return {
        "bundles": covering.bundles,
        "checkpoint_id": made.checkpoint.checkpoint_id.hex() if made else None,
        "anchor": made.anchor if made else None,
        "detail": covering.trouble,
    }


def _line(outcome: ImportOutcome) -> str:
    what = (
        f"{outcome.stream} {outcome.from_seq} to {outcome.to_seq}"
        if outcome.stream
        else outcome.name
    )
    counts = f", {outcome.imported} events" if outcome.imported else ""
    counts += f", {outcome.duplicates} duplicates" if outcome.duplicates else ""
    counts += f", {outcome.excluded} placeholders" if outcome.excluded else ""
    where = f" (in {outcome.place})" if outcome.place else ""
    detail = f": {outcome.detail}" if outcome.detail else ""
    return f"{outcome.state.value}: {what}{counts}{detail}{where}"


def _document(outcome: ImportOutcome) -> dict[str, Any]:
    return {
        "state": outcome.state.value,
        "name": outcome.name,
        "bundle_id": outcome.bundle_id.hex() if outcome.bundle_id else None,
        "stream": outcome.stream or None,
        "from_seq": outcome.from_seq,
        "to_seq": outcome.to_seq,
        "imported": outcome.imported,
        "duplicates": outcome.duplicates,
        "excluded": outcome.excluded,
        "code": outcome.code or None,
        "detail": outcome.detail or None,
        "checkpoint_at": outcome.checkpoint_at,
        "age_sec": outcome.age_sec,
    } | ({"path": outcome.place} if outcome.place else {})


@contextmanager
def _stoppable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: a line of text, and nothing is lost."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        notice("stopped; nothing is lost or duplicated: run veen bridge import again")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def release(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="Name in quarantine/, or at least its first 8 digits."
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="What was fixed; audited.")
    ],
    config: BridgeConfigOption = DEFAULT_PATH,
    operator: OperatorOption = None,
) -> None:
    """Release a carrier from quarantine, once the cause is fixed.

    Verifies the carrier again, and that it can be imported now: its stream has a target, the
    bridge a capability, the disk enough space. Then moves it to the inbox for the next veen bridge
    import. A carrier that is still refused, or whose stream is frozen, stays in quarantine; so
    does the evidence that a hub signed two histories.

    Example: veen bridge release 4f2a90c1 --config bridge.toml --reason "stream was mapped"
    """
    verify_prefix(bundle)
    order = ImportRequest(operator=operator_of(operator), reason=reason)
    release_ = released(load(config), bundle, order, runtime(), retry_policy())
    show(
        {
            "bundle_id": release_.bundle_id.hex() if release_.bundle_id else None,
            "was_quarantined_for": release_.code,
            "inbox": list(release_.inbox),
            "next": "veen bridge import",
        }
    )
