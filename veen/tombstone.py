"""The tombstone of a chunk that retention took away: what it was, signed by the hub (3.4.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from veen import sign
from veen.digest import ht
from veen.errors import Malformed, Untrusted
from veen.hub_identity import HubIdentity
from veen.schema import Bytes32, Bytes64, Version
from veen.wire import WireMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone(WireMap):
    ver: Version = 1
    label: Bytes32
    start_seq: int
    end_seq: int
    chunk_bytes: int
    chunk_sha256: Bytes32
    summary_sha256: Bytes32
    leaves_sha256: Bytes32
    pruned_at: int
    moved_to: str | None = None
    hub_sig: Bytes64 = bytes(64)

    def rule(self) -> None:
        if not 1 <= self.start_seq <= self.end_seq:
            raise Malformed(f"a tombstone from {self.start_seq} to {self.end_seq}")

    def signed(self, key: sign.PrivateKey) -> Tombstone:
        return replace(self, hub_sig=key.sign(self._signing_digest()))

    def verify(self, hub: HubIdentity) -> None:
        """Refuse unless a key of the hub, valid when the chunk was pruned, has signed this."""
        keys = (key for key in hub.hub_keys if key.overlaps(self.pruned_at, self.pruned_at))
        if not any(sign.is_valid(key.hub_pk, self.hub_sig, self._signing_digest()) for key in keys):
            raise Untrusted(f"the tombstone at {self.start_seq} is not signed by the hub")

    def _signing_digest(self) -> bytes:
        return ht("veen/tombstone", replace(self, hub_sig=bytes(64)).encode())
