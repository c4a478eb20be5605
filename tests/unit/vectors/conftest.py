"""Builders for the vector tests: hex back to bytes, and a label that judges what it signs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from veen import invariants, mmr
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey, hpke_public_key
from veen.digest import h
from veen.hub_identity import HubIdentity, new_identity
from veen.invariants import NEW_CLIENT, ClientCursor, Grant
from veen.label import EpochLabels
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, seal_payload
from veen.receipt import Receipt

READER = hpke_public_key(b"\x05" * 32)


def _revived(value: Any) -> Any:
    if isinstance(value, str):
        return bytes.fromhex(value)
    if isinstance(value, list):
        return tuple(_revived(element) for element in value)
    if isinstance(value, dict):
        return {key: _revived(element) for key, element in value.items()}
    return value


@pytest.fixture
def revived() -> Callable[[Any], Any]:
    """Hex to bytes and lists to tuples, at every depth."""
    return _revived


@dataclass
class Log:
    """One label and its hub: signs whatever is appended, then lets the verifier judge the pair."""

    hub_key: SigningKey
    labels: EpochLabels
    epoch: int = 0
    grant: Grant | None = None
    peaks: mmr.Peaks = mmr.EMPTY
    clients: dict[bytes, ClientCursor] = field(default_factory=dict)

    @property
    def hub(self) -> HubIdentity:
        return new_identity(self.hub_key.public, 0, "none")

    def msg(
        self, client: SigningKey, seq: int, prev_ack: int = 0, auth_ref: bytes | None = None
    ) -> Msg:
        """An empty body for this label; its place alone tells it from others."""
        profile, label = self.labels.profile, self.labels.at(self.epoch)
        place = SealPlace(
            profile=profile, label=label, client_id=client.public, client_seq=seq,
            prev_ack=prev_ack, auth_ref=auth_ref,
        )  # fmt: skip
        sealed = seal_payload(
            recipient=READER, ephemeral=h(place.aad()), place=place,
            header=PayloadHdr(schema=h(b"chat.v1")), body=b"", limits=Limits(),
        )  # fmt: skip
        return Msg(
            profile_id=profile.profile_id(), label=label, client_id=client.public, client_seq=seq,
            prev_ack=prev_ack, auth_ref=auth_ref, ct_hash=h(sealed.ciphertext),
            ciphertext=sealed.ciphertext,
        ).signed(client)  # fmt: skip

    def append(self, msg: Msg, hub_ts: int) -> Receipt:
        grown = self.peaks.append(msg.leaf_hash())
        receipt = Receipt(
            label=msg.label, stream_seq=grown.size, leaf_hash=msg.leaf_hash(),
            mmr_root=grown.root(), hub_ts=hub_ts,
        ).signed(self.hub_key)  # fmt: skip
        client = self.clients.get(msg.client_id, NEW_CLIENT)
        before = invariants.Before(peaks=self.peaks, client=client, grant=self.grant)
        after = invariants.verify_pair(msg, receipt, before, self._rules())
        self.peaks, self.grant = after.peaks, after.grant
        self.clients[msg.client_id] = after.client
        return receipt

    def checkpoint(self, label_prev: bytes) -> Checkpoint:
        return Checkpoint(
            label_prev=label_prev, label_curr=self.labels.at(self.epoch), epoch=self.epoch,
            upto_seq=self.peaks.size, mmr_root=self.peaks.root(),
        ).signed(self.hub_key)  # fmt: skip

    def _rules(self) -> invariants.Rules:
        profile = self.labels.profile
        return invariants.Rules(
            hub=self.hub,
            profiles={profile.profile_id(): profile},
            limits=Limits(max_epoch_skew_sec=60),
            stream=self.labels,
        )


@pytest.fixture
def new_label_log() -> type[Log]:
    return Log
