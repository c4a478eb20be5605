"""``veen bridge import``, ``approve`` and ``receipt``: let carriers in, and say that they are."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

from bridge.importer.airlock import Airlock
from bridge.importer.approvals import APPROVE, REJECT, Approval, decide
from bridge.importer.outcome import Outcome, State
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import Order, Result, importing, run_import
from bridge.importer.status import standing
from bridge.settings import DEFAULT_PATH, Settings, load
from cli.bridge_options import NOTHING_TO_DO, BridgeConfigOption, OperatorOption, operator_of
from cli.console import manner, notice, progress, show, show_text
from cli.failure import Refused
from cli.options import ClientOption, patience, surroundings
from cli.passphrase import PassphraseFileOption, passphrase_of
from veen.keystore.directory import ClientDir

DUPLICATE, WAITING, QUARANTINED, AUDIT_PENDING, PARTIAL, BLOCKED = range(7, 13)
"""Exit codes beside those that every command has; the gravest of a run counts."""

_GRAVITY: Final = (
    (State.PARTIAL, PARTIAL),
    (State.QUARANTINED, QUARANTINED),
    (State.REJECTED, QUARANTINED),
    (State.FROZEN, BLOCKED),
    (State.BLOCKED, BLOCKED),
    (State.WAITING, WAITING),
    (State.INCOMPLETE, WAITING),
    (State.IMPORTED, 0),
    (State.HEARTBEAT, 0),
    (State.DUPLICATE, DUPLICATE),
)
_HEX: Final = re.compile(r"[0-9a-f]{8,64}")

BundleArgument = Annotated[
    str, typer.Argument(metavar="BUNDLE", help="A bundle_id, or its first 8 digits or more.")
]


def import_(
    config: BridgeConfigOption = DEFAULT_PATH,
    medium: Annotated[
        list[Path] | None,
        typer.Option("--medium", metavar="DIR", help="A mounted medium; repeat for a set."),
    ] = None,
    accept_gap: Annotated[
        list[str] | None,
        typer.Option("--accept-gap", metavar="BUNDLE", help="Let it in though events lack before."),
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why the gap is accepted; is audited.")
    ] = "",
    rebuild: Annotated[
        bool, typer.Option("--rebuild-ledger", help="Make the ledger again from the logs first.")
    ] = False,
    operator: OperatorOption = None,
) -> None:
    """Let in what lies in the inbox and on the media, each event exactly once.

    A bundle goes in whole or not at all. What was cut short is finished first. A bundle behind a
    gap waits and goes in by itself once the gap closes; a bad one is kept in quarantine/ with the
    reason. It may be stopped or killed at any time: run it again.

    Exit codes: 0 imported, 6 nothing to do, 7 only duplicates, 8 waiting or incomplete,
    9 quarantined, 10 the audit entry is kept but not in the log yet, 11 the hub took only a part,
    12 blocked by approvals or a frozen stream.

    Example: veen bridge import --config bridge.toml --medium /media/usb
    """
    if accept_gap and not reason:
        raise typer.BadParameter("--accept-gap needs --reason: it is written to the audit log")
    for one in accept_gap or ():
        _verify_prefix(one)
    order = Order(
        operator=operator_of(operator),
        media=tuple(path.absolute() for path in medium or ()),
        accepted=tuple(accept_gap or ()),
        reason=reason,
    )
    settings = load(config)
    with _stoppable():
        if rebuild:
            found = rebuild_ledger(settings, order, surroundings(), patience())
            notice(f"the ledger was made again: {found.bundles} bundles, {found.events} events")
        with progress("import", "events") as report:
            result = run_import(
                settings, order, surroundings(), patience=patience(), progress=report
            )
    _show(result)


def approve(
    bundle: BundleArgument,
    client: ClientOption,
    config: BridgeConfigOption = DEFAULT_PATH,
    reject: Annotated[
        bool, typer.Option("--reject", help="Decide against it: it goes to quarantine.")
    ] = False,
    passphrase_file: PassphraseFileOption = None,
) -> None:
    """Sign for a bundle that waits for approvals, or against it.

    Each person has a client directory of their own, and decides once about a bundle. Once all
    signatures are there, veen bridge import lets it in.

    Example: veen bridge approve 4f2a90c1 --config bridge.toml --client ./alice
    """
    airlock = _airlock(load(config))
    held = [one for one in standing(airlock).unfinished if one.state == State.BLOCKED.value]
    found = _one(bundle, {one.bundle_id.hex() for one in held}, "waits for approvals")
    directory = ClientDir(client.absolute())
    key = directory.open(passphrase_of(directory, passphrase_file)).client
    decision = REJECT if reject else APPROVE
    path = decide(airlock.approvals, Approval.of(key, bytes.fromhex(found), decision))
    show(
        {
            "bundle_id": found,
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
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the page with the QR code.")
    ] = None,
) -> None:
    """Print the receipt of an import: a page, with six words for two people to compare.

    Example: veen bridge receipt 4f2a90c1 --config bridge.toml --svg receipt.svg
    """
    folder = _airlock(load(config)).receipts
    names = {path.stem for path in folder.glob("*.txt")} if folder.is_dir() else set()
    found = _one(bundle, names, "has a receipt here")
    text = (folder / f"{found}.txt").read_text()
    if svg is not None:
        svg.write_text((folder / f"{found}.svg").read_text())
    words = next(line[12:] for line in text.splitlines() if line.startswith("Words"))
    show({"bundle_id": found, "words": words, "text": text}, text)


def offline_status(settings: Settings) -> None:
    """Where the importing side stands; ``veen bridge status`` shows it."""
    found = standing(_airlock(settings))
    show(
        {
            "zone": settings.name,
            "inbox": found.inbox,
            "bundles": found.bundles,
            "unclosed": found.unclosed,
            "streams": [
                {
                    "stream": one.stream.name,
                    "hub": one.stream.source_hub_id.hex(),
                    "held": ",".join(f"{span.first}..{span.last}" for span in one.held) or None,
                    "frozen_at": one.frozen_at,
                }
                for one in found.streams
            ],
            "unfinished": [
                {"bundle_id": one.bundle_id.hex(), "state": one.state, "told": one.told}
                for one in found.unfinished
            ],
            "next": found.next_command(),
        }
    )


def _show(result: Result) -> None:
    outcomes = result.outcomes
    if not manner().json:
        show_text(_line(one) for one in outcomes)
    count = sum(one.imported for one in outcomes if one.state is State.IMPORTED)
    document: dict[str, Any] = {
        "imported_events": count,
        "carriers": [_document(one) for one in outcomes],
        "audit_pending": str(result.pending) if result.pending else None,
    }
    if result.pending is not None:
        show(document, f"not done: {result.pending}")
        raise typer.Exit(AUDIT_PENDING)
    code = _exit_code(outcomes)
    show(document, f"{count} events imported" if outcomes else "nothing to do: no carrier is here")
    if code:
        raise typer.Exit(code)


def _exit_code(outcomes: tuple[Outcome, ...]) -> int:
    states = {one.state for one in outcomes}
    return next((code for state, code in _GRAVITY if state in states), NOTHING_TO_DO)


def _line(one: Outcome) -> str:
    what = f"{one.stream} {one.from_seq} to {one.to_seq}" if one.stream else one.name
    counts = f", {one.imported} events" if one.imported else ""
    counts += f", {one.duplicates} duplicates" if one.duplicates else ""
    counts += f", {one.excluded} placeholders" if one.excluded else ""
    return f"{one.state.value}: {what}{counts}{': ' if one.told else ''}{one.told}"


def _document(one: Outcome) -> dict[str, Any]:
    return {
        "state": one.state.value,
        "name": one.name,
        "bundle_id": one.bundle_id.hex() if one.bundle_id else None,
        "stream": one.stream or None,
        "from_seq": one.from_seq,
        "to_seq": one.to_seq,
        "imported": one.imported,
        "duplicates": one.duplicates,
        "excluded": one.excluded,
        "code": one.code or None,
        "told": one.told or None,
    }


def _airlock(settings: Settings) -> Airlock:
    return Airlock(importing(settings).state)


def _verify_prefix(text: str) -> None:
    if not _HEX.fullmatch(text):
        raise typer.BadParameter(f"{text!r}: a bundle is named by 8 to 64 digits of its bundle_id")


def _one(prefix: str, known: set[str], what: str) -> str:
    _verify_prefix(prefix)
    found = sorted(one for one in known if one.startswith(prefix))
    if len(found) != 1:
        count = "no bundle" if not found else f"{len(found)} bundles"
        raise Refused(f"{count} of id {prefix} {what}; see veen bridge status")
    return found[0]


@contextmanager
def _stoppable() -> Iterator[None]:
    """A termination is like Ctrl-C: told in a line, and nothing is lost."""
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        notice("stopped; nothing is lost or doubled: run veen bridge import again")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
