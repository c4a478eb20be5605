"""What is wrong with a pair of message and receipt by itself: every rule it breaks, not the first.

``veen.invariants.verify_pair`` refuses a pair; an audit tells all that is wrong with it and goes
on. The rules are the same, and a test holds the two against each other. What follows from what
came before, the root and the numbers of the client, is checked where that is known.

A rule that can only be broken along with another is told once: a message that was changed has
neither its hash nor its signature any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from veen import ciphertext
from veen.audit.context import Context, Depth, Origin
from veen.errors import Untrusted, WrongSize
from veen.msg import Msg
from veen.receipt import Receipt

# Signatures are checked many in a row: the processor then keeps at hand what they need.
TOGETHER: Final = 256


class Broken(NamedTuple):
    code: str
    what: str


class Signed(NamedTuple):
    """A pair whose signatures wait; the message is None when it is known to be changed."""

    at: int
    msg: Msg | None
    receipt: Receipt


class PairCheck:
    def __init__(self, context: Context, label: bytes, origin: Origin | None) -> None:
        self._context = context
        self._label = label
        self._origin = origin
        self._profile_id = origin.labels.profile.profile_id() if origin else b""
        self._is_near: dict[int, bool] = {}
        self._signatures = context.depth is Depth.FULL
        self.signed: list[Signed] = []
        """The pairs whose signatures wait."""

    def broken(self, msg: Msg, receipt: Receipt, leaf: bytes, at: int) -> list[Broken]:
        """All but the signatures, which wait; ``leaf`` is the message's own leaf hash."""
        told = []
        found = self._message(msg)
        if found is not None:
            told.append(found)
        if self._signatures:
            self.signed.append(Signed(at, msg if found is None else None, receipt))
        if msg.profile_id not in self._context.profiles:
            told.append(Broken("I4", f"profile {msg.profile_id.hex()} is not supported"))
        if leaf != receipt.leaf_hash:
            told.append(Broken("I2", "leaf_hash is not that of the message"))
        origin, hub_ts = self._origin, receipt.hub_ts
        if origin is not None and origin.since > hub_ts:
            origin = None
        if msg.auth_ref is not None:
            found = self._capability(msg, msg.auth_ref, hub_ts, origin)
            if found is not None:
                told.append(found)
        if origin is not None:
            told += self._epoch(msg, origin, hub_ts)
        return told

    def unsigned(self) -> Iterator[tuple[int, int, Broken]]:
        """Offset and stream_seq of each signature that waited and does not hold."""
        waiting, self.signed = self.signed, []
        for at, msg, receipt in waiting:
            if msg is not None and not msg.signature_is_valid():
                what = "the message is not signed by its client_id"
                yield at, receipt.stream_seq, Broken("SIG", what)
            try:
                self._context.hub.verify_receipt(receipt)
            except Untrusted as error:
                yield at, receipt.stream_seq, Broken("SIG", str(error))

    def _message(self, msg: Msg) -> Broken | None:
        limits = self._context.limits
        if len(msg.encode()) > limits.max_msg_bytes:
            return Broken("I11", f"a message of {len(msg.encode())} bytes")
        try:
            ciphertext.check_sizes(msg.ciphertext, limits)
        except WrongSize as error:
            return Broken("I11", str(error))
        if not msg.ct_hash_matches():
            return Broken("I1", "ct_hash is not the hash of the ciphertext")
        return None

    def _capability(
        self, msg: Msg, auth_ref: bytes, hub_ts: int, origin: Origin | None
    ) -> Broken | None:
        found = self._context.capabilities.get(auth_ref)
        is_known = found is not None and found.issued_at <= hub_ts
        if found is None or not is_known:
            if found is None and not self._context.control_is_whole:
                return None
            return Broken("I7", "no capability was known under its auth_ref")
        token, issued_at = found
        if msg.client_id != token.subject_pk:
            return Broken("I7", "the capability is another client's")
        if hub_ts > token.expires_at(issued_at):
            return Broken("I7", f"the capability ended at {token.expires_at(issued_at)}")
        if origin is not None and not token.allows_stream(origin.labels.stream_id):
            return Broken("I7", "the capability is for other streams")
        return None

    def _epoch(self, msg: Msg, origin: Origin, hub_ts: int) -> Iterable[Broken]:
        told = []
        if msg.profile_id != self._profile_id and msg.profile_id in self._context.profiles:
            told.append(Broken("I4", "the profile is not that of the stream"))
        epoch = origin.labels.profile.epoch(hub_ts)
        if epoch not in self._is_near:
            accepted = origin.labels.accepted(hub_ts, self._context.limits.max_epoch_skew_sec)
            self._is_near[epoch] = self._label in accepted
        if not self._is_near[epoch]:
            told.append(Broken("I12", "the label is not of an epoch near hub_ts"))
        return told
