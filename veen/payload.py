"""payload_hdr, the typed header that only the receiver reads (spec 4.5)."""

from __future__ import annotations

from dataclasses import dataclass

from veen.schema import Bytes32
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadHdr(WireMap):
    schema: Bytes32
    parent_id: Bytes32 | None = None
    att_root: Bytes32 | None = None
    cap_ref: Bytes32 | None = None
    expires_at: int | None = None
