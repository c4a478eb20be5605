"""Anchors that are time stamps: an authority signs that it has seen a root (RFC 3161)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

from recorder.anchor.port import Anchored, AnchorUnavailable, anchor_digest
from recorder.anchor.tsa import Trust
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.schema import Bytes32, Version
from veen.wire import WireMap

KIND: Final = "rfc3161"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStampRef(WireMap):
    """The anchor_ref of a time stamp: what was asked, and the whole answer.

    A few bytes of a response are under no signature; ``response_hash`` shows damage there too.
    """

    ver: Version = 1
    kind: str = KIND
    epoch: int
    ts: int
    nonce: bytes
    tsa_nonce: int
    response: bytes
    response_hash: Bytes32

    def rule(self) -> None:
        if self.kind != KIND:
            raise Malformed(f"an anchor_ref of kind {self.kind}, not {KIND}")
        if self.response_hash != h(self.response):
            raise Malformed("the time stamp of an anchor_ref is damaged")


class TimeStamps:
    """``ask`` carries a query to the authority and brings its response, or AnchorUnavailable."""

    kind: Final = KIND

    def __init__(self, trust: Trust, ask: Callable[[bytes], bytes]) -> None:
        self._trust = trust
        self._ask = ask

    def publish(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
        """The certificate is pinned, so the response need not carry one."""
        message = anchor_digest(root, epoch, ts, nonce)
        query = TimestampRequestBuilder(
            data=message, hash_algorithm=HashAlgorithm.SHA256, nonce=True, cert_req=False
        ).build()
        response = self._ask(query.as_bytes())
        ref = TimeStampRef(
            epoch=epoch,
            ts=ts,
            nonce=nonce,
            tsa_nonce=query.nonce or 0,
            response=response,
            response_hash=h(response),
        )
        try:
            self._trust.verify(response, message, ref.tsa_nonce)
        except Untrusted as error:
            raise AnchorUnavailable(
                f"no anchor from the time-stamping authority: {error}"
            ) from error
        return ref.encode()

    def verify(self, root: bytes, anchor_ref: bytes) -> Anchored:
        ref = TimeStampRef.decode(anchor_ref)
        message = anchor_digest(root, ref.epoch, ref.ts, ref.nonce)
        stamp = self._trust.verify(ref.response, message, ref.tsa_nonce)
        return Anchored(
            kind=self.kind,
            root=root,
            epoch=ref.epoch,
            ts=ref.ts,
            nonce=ref.nonce,
            time=stamp.time,
            witness=stamp.signer,
            place=f"time stamp {stamp.serial:x} under policy {stamp.policy}",
        )
