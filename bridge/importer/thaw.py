"""Letting a frozen stream go on, by an operator's word: audited, and with the evidence kept."""

from __future__ import annotations

from bridge.audit_events import StreamThawed
from bridge.importer.closing import close
from bridge.importer.conclusion import closing_of
from bridge.importer.ledger_tables import Stream
from bridge.importer.run import Order, opened, refuse_lost_ledger
from bridge.printable import printable
from bridge.settings import Settings
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience
from veen.errors import VeenError


class NotFrozen(VeenError):
    """A stream that nothing is to be done about."""


def thaw(
    settings: Settings,
    stream: Stream,
    order: Order,
    surroundings: Surroundings,
    patience: Patience | None = None,
    *,
    forget: bool = False,
) -> int:
    """From where on the stream goes on again; the other history is refused as before.

    What is held was verified and stays. Only what continues it goes in after this. With ``forget``
    the next checkpoint of the hub counts, whatever the last one said.
    """
    with opened(settings, order, surroundings, patience) as tools:
        refuse_lost_ledger(tools)
        tools.trail.settle()
        for closing in tools.ledger.closings():
            close(tools, closing)
        seq = tools.ledger.frozen_at(stream)
        if seq is None:
            raise NotFrozen(f"{printable(stream.name)} is not frozen; see veen bridge status")
        event = StreamThawed(
            operator=order.operator,
            source_hub_id=stream.source_hub_id,
            stream=stream.name,
            seq=seq,
            reason=order.reason,
            is_forgotten=forget,
        )
        kept = tools.airlock.inside(tools.airlock.checkpoint(stream.source_hub_id))
        closing = closing_of(tools, [event], removals=(kept,) if forget else ())
        tools.ledger.thaw(stream, closing)
        close(tools, closing)
        return seq
