"""Where an importing zone stands, from its ledger alone, and the next safe command."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bridge.importer.airlock import Airlock
from bridge.importer.ledger import ImportLedger
from bridge.importer.ledger_tables import BundleRow, Span, Stream
from bridge.importer.outcome import State

_OPEN = (State.WAITING, State.BLOCKED, State.FROZEN, State.COMMITTING, State.PARTIAL)


@dataclass(frozen=True, slots=True)
class StreamStanding:
    stream: Stream
    held: tuple[Span, ...]
    frozen_at: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """``unclosed`` outcomes are decided, and wait for their audit entry or for files to move.
    ``uncovered`` bundles are imported, and wait for the checkpoint that the settings ask for.
    """

    streams: tuple[StreamStanding, ...]
    bundles: dict[str, int]
    unfinished: tuple[BundleRow, ...]
    inbox: int
    unclosed: int
    uncovered: int

    def next_command(self) -> str:
        states = {one.state for one in self.unfinished}
        begun = states & {State.COMMITTING.value, State.PARTIAL.value}
        if self.unclosed or begun or self.inbox or self.uncovered:
            return "veen bridge import"
        if State.BLOCKED.value in states:
            return "veen bridge approve"
        if State.FROZEN.value in states or any(one.frozen_at for one in self.streams):
            return (
                "look at quarantine/, and ask the exporting zone which history is theirs; "
                "veen bridge thaw, if it is the one that is held"
            )
        if State.WAITING.value in states:
            return "bring the missing carriers: veen bridge reconcile names them"
        return "veen bridge import --medium DIR"


def standing(airlock: Airlock) -> Standing:
    """What the ledger tells; a run that goes on meanwhile does not mind."""
    airlock.create()
    with ImportLedger(airlock.ledger) as ledger:
        rows = ledger.bundles()
        names = sorted({Stream(one.source_hub_id, one.stream) for one in rows})
        names = sorted({*names, *ledger.streams()})
        streams = tuple(
            StreamStanding(one, _joined(ledger.spans(one)), ledger.frozen_at(one)) for one in names
        )
        unclosed, uncovered = len(ledger.closings()), len(ledger.uncovered())
    open_states = {one.value for one in _OPEN}
    return Standing(
        streams,
        dict(sorted(Counter(one.state for one in rows).items())),
        tuple(one for one in rows if one.state in open_states),
        sum(not path.name.startswith(".") for path in airlock.inbox.iterdir()),
        unclosed,
        uncovered,
    )


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    found: list[Span] = []
    for span in spans:
        if found and found[-1].last + 1 == span.first:
            found[-1] = Span(found[-1].first, span.last)
        else:
            found.append(span)
    return tuple(found)
