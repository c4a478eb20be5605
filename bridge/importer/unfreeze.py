"""Unfreezing of a stream at an operator's request: audited, and with the evidence preserved."""

from __future__ import annotations

from bridge.audit_log import StreamThawed
from bridge.errors import printable
from bridge.importer.finish import apply_pending, pending_actions
from bridge.importer.ledger import SourceStream
from bridge.importer.run import ImportRequest, opened, verify_ledger_current
from bridge.settings import BridgeSettings
from veen.client.transport import RetryPolicy
from veen.errors import VeenError
from veen.system.environment import Runtime


class NotFrozen(VeenError):
    """A stream that is not frozen."""


def unfreeze(
    settings: BridgeSettings,
    stream: SourceStream,
    order: ImportRequest,
    runtime: Runtime,
    retry_policy: RetryPolicy | None = None,
    *,
    forget: bool = False,
) -> int:
    """Unfreeze a stream; return the sequence number at which it was frozen.

    What is held was verified and stays; only its continuation is imported, and the other history
    is still refused. With ``forget`` the stored checkpoint of the hub is dropped, and the next one
    is accepted.
    """
    with opened(settings, order, runtime, retry_policy) as context:
        verify_ledger_current(context)
        context.audit_outbox.settle()
        for pending in context.ledger.closings():
            apply_pending(context, pending)
        seq = context.ledger.frozen_at(stream)
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
        stored = context.import_dir.inside(context.import_dir.checkpoint(stream.source_hub_id))
        pending = pending_actions(context, [event], removals=(stored,) if forget else ())
        context.ledger.unfreeze(stream, pending)
        apply_pending(context, pending)
        return seq
