"""``veen bridge import``: let carriers in, and tell what became of each."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final

import typer

from bridge.importer.covering import Covering
from bridge.importer.outcome import Outcome, State
from bridge.importer.rebuild import rebuild_ledger
from bridge.importer.run import Order, Result, run_import
from bridge.settings import DEFAULT_PATH, Settings, load
from cli.bridge_airlock import verify_prefix
from cli.bridge_cover import cover_of
from cli.bridge_options import NOTHING_TO_DO, BridgeConfigOption, OperatorOption, operator_of
from cli.console import manner, notice, show, show_text, watching
from cli.options import patience, surroundings
from cli.zone_imports import take_up

DUPLICATE, WAITING, QUARANTINED, AUDIT_PENDING, PARTIAL, BLOCKED = range(7, 13)
UNCOVERED = 14
"""Exit codes beside those that every command has; the gravest of a run counts."""

_GRAVITY: Final = (
    (State.PARTIAL, PARTIAL),
    (State.QUARANTINED, QUARANTINED),
    (State.REFUSED, QUARANTINED),
    (State.REJECTED, QUARANTINED),
    (State.FROZEN, BLOCKED),
    (State.BLOCKED, BLOCKED),
    (State.WAITING, WAITING),
    (State.INCOMPLETE, WAITING),
    (State.IMPORTED, 0),
    (State.HEARTBEAT, 0),
    (State.DUPLICATE, DUPLICATE),
)
_NOTHING: Final = "none"
_ID_DIGITS: Final = 64


MediumOption = Annotated[
    list[Path] | None,
    typer.Option("--medium", metavar="DIR", help="A mounted medium; repeat for a set."),
]
AcceptGapOption = Annotated[
    list[str] | None,
    typer.Option("--accept-gap", metavar="BUNDLE", help="Let it in though events lack before."),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="BUNDLE", help="Let no other in; or: none."),
]
RejectOption = Annotated[
    list[str] | None,
    typer.Option("--reject", metavar="BUNDLE", help="It goes to quarantine; repeatable."),
]
UnapprovedOption = Annotated[
    list[str] | None,
    typer.Option("--unapproved", metavar="BUNDLE", help="Audit that its approval is refused."),
]
ReasonOption = Annotated[
    str,
    typer.Option(
        "--reason", metavar="TEXT", help="Of --accept-gap, --reject, --unapproved; is audited."
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
        bool, typer.Option("--rebuild-ledger", help="Make the ledger again from the logs first.")
    ] = False,
    operator: OperatorOption = None,
) -> None:
    """Let in what lies in the inbox and on the media, each event exactly once.

    A bundle goes in whole or not at all. What was cut short is finished first. A bundle behind a
    gap waits and goes in by itself once the gap closes; a bad one is kept in quarantine/ with the
    reason. With --only or --reject nothing goes in that --only does not name; --unapproved is for
    whoever found that an approval was forged. It may be stopped or killed at any time: run it
    again.

    Exit codes: 0 imported, 6 nothing to do, 7 only duplicates, 8 waiting or incomplete,
    9 quarantined, rejected or refused, 10 the audit entry is kept but not in the log yet, 11 the
    hub took only a part, 12 blocked by approvals or a frozen stream, 14 imported, but the
    checkpoint, the anchor or the recorder event that the settings ask for is not there yet.

    Example: veen bridge import --config bridge.toml --medium /media/usb
    """
    if (accept_gap or reject or unapproved) and not reason:
        raise typer.BadParameter(
            "--accept-gap, --reject and --unapproved need --reason: it is written to the audit log"
        )
    for one in (*(accept_gap or ()), *(only or ()), *(reject or ())):
        if one != _NOTHING:
            verify_prefix(one)
    order = Order(
        operator=operator_of(operator),
        media=tuple(path.absolute() for path in medium or ()),
        accepted=tuple(accept_gap or ()),
        only=tuple(only or ()) if only or reject or unapproved else None,
        rejected=tuple(reject or ()),
        unapproved=tuple(_whole_id(one) for one in unapproved or ()),
        reason=reason,
    )
    result = _run(load(config), order, rebuild=rebuild)
    # A hub whose keys have changed was pinned anew: the index is to follow with those.
    take_up(config)
    _show(result)


def _whole_id(text: str) -> bytes:
    verify_prefix(text)
    if len(text) != _ID_DIGITS:
        raise typer.BadParameter(f"{text!r}: --unapproved takes a whole bundle_id, 64 hex digits")
    return bytes.fromhex(text)


def _run(settings: Settings, order: Order, *, rebuild: bool) -> Result:
    cover, watch = cover_of(settings), watching()
    with _stoppable():
        if rebuild:
            found = rebuild_ledger(settings, order, surroundings(), patience(), watch)
            notice(f"the ledger was made again: {found.bundles} bundles, {found.events} events")
        return run_import(
            settings, order, surroundings(), patience=patience(), watch=watch, cover=cover
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


def _exit_code(result: Result) -> int:
    states = {one.state for one in result.outcomes}
    found = next((code for state, code in _GRAVITY if state in states), NOTHING_TO_DO)
    if result.unrecorded is not None and found in (0, DUPLICATE, NOTHING_TO_DO):
        return UNCOVERED
    if result.covering is None or found not in (0, DUPLICATE, NOTHING_TO_DO):
        return found
    return UNCOVERED if result.covering.trouble is not None else 0


def _covering(found: Covering | None) -> dict[str, Any] | None:
    if found is None:
        return None
    made = found.covered
    return {
        "bundles": found.bundles,
        "checkpoint_id": made.checkpoint.checkpoint_id.hex() if made else None,
        "anchor": made.anchor if made else None,
        "told": found.trouble,
    }


def _line(one: Outcome) -> str:
    what = f"{one.stream} {one.from_seq} to {one.to_seq}" if one.stream else one.name
    counts = f", {one.imported} events" if one.imported else ""
    counts += f", {one.duplicates} duplicates" if one.duplicates else ""
    counts += f", {one.excluded} placeholders" if one.excluded else ""
    where = f" (in {one.place})" if one.place else ""
    return f"{one.state.value}: {what}{counts}{': ' if one.told else ''}{one.told}{where}"


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
        "checkpoint_at": one.checkpoint_at,
        "age_sec": one.age_sec,
    } | ({"path": one.place} if one.place else {})


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
