"""Unfreezing of a stream at an operator's request: audited, and with the evidence preserved."""

from __future__ import annotations

from bridge.audit_log import StreamThawed
from bridge.errors import printable
from bridge.importer.finish import Completion, finish, finish_interrupted
from bridge.importer.ledger import LedgerChange, SourceStream
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
    request: ImportRequest,
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
    with opened(settings, request, runtime, retry_policy) as context:
        verify_ledger_current(context)
        finish_interrupted(context)
        seq = context.ledger.frozen_at(stream)
        if seq is None:
            raise NotFrozen(
                f"{printable(stream.name)}: expected a frozen stream, got one that is not; "
                "veen bridge status lists them"
            )
        event = StreamThawed(
            operator=request.operator,
            source_hub_id=stream.source_hub_id,
            stream=stream.name,
            seq=seq,
            reason=request.reason,
            checkpoint_dropped=forget,
        )
        stored = context.import_dir.inside(context.import_dir.checkpoint(stream.source_hub_id))
        completion = Completion(
            events=(event,),
            change=LedgerChange(unfrozen=stream),
            removals=(stored,) if forget else (),
        )
        finish(context, completion)
        return seq
