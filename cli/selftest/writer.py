"""A client that builds its messages by hand, right or wrong, as a step wants them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from cli.selftest.probe import Probe, Reply
from cli.selftest.step import Unexpected, expect
from veen import hpke, seal
from veen.digest import h
from veen.envelope import ErrorEnvelope
from veen.errors import Failure
from veen.label import EpochLabels
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr
from veen.receipt import Receipt
from veen.sign import PrivateKey

_SCHEMA: Final = h(b"veen.selftest.v1")
_KNOWN: Final = [(one.code.value, one.detail_enum) for one in (Failure.DUPLICATE, Failure.PREV_ACK)]
"""How a message is refused that is in the log: it may also look back too far by now."""


@dataclass(slots=True)
class Writer:
    """``client_seq`` and ``prev_ack`` are those of its next message."""

    key: PrivateKey
    labels: EpochLabels
    auth_ref: bytes | None
    probe: Probe
    random: Callable[[int], bytes]
    limits: Limits
    client_seq: int = 1
    prev_ack: int = 0
    epoch: int = 0

    def msg(self, body: bytes = b"self-test", **changes: Any) -> Msg:
        """The next message, sealed and signed; ``changes`` are put in before the signature."""
        place = seal.Place(
            profile=self.labels.profile,
            label=self.labels.at(self.epoch),
            client_id=self.key.public,
            client_seq=self.client_seq,
            prev_ack=self.prev_ack,
            auth_ref=self.auth_ref,
        )
        sealed = seal.seal(
            recipient=hpke.public_key(self.random(32)),
            ephemeral=self.random(32),
            place=place,
            header=PayloadHdr(schema=_SCHEMA),
            body=body,
            limits=Limits(),
        )
        return self.around(sealed.ciphertext, **changes)

    def around(self, ciphertext: bytes, **changes: Any) -> Msg:
        """The next message with a ciphertext that may be anything."""
        plain = Msg(
            profile_id=self.labels.profile.profile_id(),
            label=self.labels.at(self.epoch),
            client_id=self.key.public,
            client_seq=self.client_seq,
            prev_ack=self.prev_ack,
            auth_ref=self.auth_ref,
            ct_hash=h(ciphertext),
            ciphertext=ciphertext,
        )
        return replace(plain, **changes).signed(self.key)

    def submit(self, msg: Msg) -> Reply:
        return self.probe.submit(msg.encode())

    def accepted(self, msg: Msg | None = None) -> Receipt:
        """Send a message that is right; the hub must take it, and number on from there."""
        receipt = self.submit(msg or self.msg()).receipt()
        expect("stream_seq of the next message", receipt.stream_seq, self.prev_ack + 1)
        self.client_seq += 1
        self.prev_ack = receipt.stream_seq
        return receipt

    def refused(self, failure: Failure, msg: Msg) -> ErrorEnvelope:
        """Send a message that is wrong; nothing of it may be kept."""
        return self.submit(msg).refused_with(failure)

    def known(self, msg: Msg, receipt: Receipt) -> None:
        """Send an earlier message again; the hub must say where it is, with its receipt."""
        found = self.submit(msg).refusal()
        detail = found.detail or {}
        told = (found.code, detail.get("detail_enum"))
        if told not in _KNOWN:
            raise Unexpected(f"a message sent again: expected one of {_KNOWN}, found {told}")
        expect("where it is", detail.get("stream_seq"), receipt.stream_seq)
        expect("its receipt", detail.get("receipt"), receipt.encode())
