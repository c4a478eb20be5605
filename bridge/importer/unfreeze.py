"""Letting a frozen stream go on, by an operator's word: audited, and with the evidence kept."""

from __future__ import annotations

from bridge.audit_log import StreamThawed
from bridge.errors import printable
from bridge.importer.finish import apply_pending, pending_actions
from bridge.importer.ledger import SourceStream
from bridge.importer.run import Order, opened, refuse_lost_ledger
from bridge.settings import BridgeSettings
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.system.environment import Runtime


class NotFrozen(VeenError):
    """A stream that nothing is to be done about."""


def unfreeze(
    settings: BridgeSettings,
    stream: SourceStream,
    order: Order,
    runtime: Runtime,
    retry_policy: RetryPolicy | None = None,
    *,
    forget: bool = False,
) -> int:
    """From where on the stream goes on again; the other history is refused as before.

    What is held was verified and stays. Only what continues it goes in after this. With ``forget``
    the next checkpoint of the hub counts, whatever the last one said.
    """
    with opened(settings, order, runtime, retry_policy) as tools:
        refuse_lost_ledger(tools)
        tools.audit_outbox.settle()
        for closing in tools.ledger.closings():
            apply_pending(tools, closing)
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
        stored = tools.airlock.inside(tools.airlock.checkpoint(stream.source_hub_id))
        closing = pending_actions(tools, [event], removals=(stored,) if forget else ())
        tools.ledger.unfreeze(stream, closing)
        apply_pending(tools, closing)
        return seq
