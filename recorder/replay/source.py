"""Where a replay reads: the port, and the hub behind a client as one that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from veen.client import head, reader
from veen.client.client import Client
from veen.client.errors import HubRefused
from veen.client.pages import Range
from veen.client.pair import Log, Pair
from veen.client.replay import replay
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.profile import DEFAULT_PROFILE
from veen.range_proof import RangeProof
from veen.seal import Opened
from veen.tooling import LocateRequest


class Source(Protocol):
    """A log to replay. What it says of places and proofs is not believed before it is verified."""

    @property
    def hub(self) -> HubIdentity:
        """The pinned identity of the hub whose log this is."""

    def identity_sig(self) -> bytes:
        """The hub's signature over that identity."""

    def pages(self, stream: str, from_seq: int, to_seq: int) -> Iterator[tuple[Pair, ...]]:
        """Pairs with their signatures and order verified, in runs that fit into memory."""

    def range_proof(self, stream: str, from_seq: int, to_seq: int, size: int) -> RangeProof:
        """A proof of these places at that size, or HubRefused."""

    def first_at(self, stream: str, hub_ts: int) -> int | None:
        """The first place not before a time, as the index knows it; None where there is none."""

    def head_seq(self, stream: str) -> int:
        """How far the stream goes by now."""

    def open_pair(self, pair: Pair) -> Opened:
        """The payload of a message, or Unopenable."""


class HubSource:
    """A running hub, read and verified by a client."""

    def __init__(self, client: Client) -> None:
        self._session = client.meet()

    @property
    def hub(self) -> HubIdentity:
        return self._session.hub

    def identity_sig(self) -> bytes:
        status = self._session.api.status()
        if status.identity() != self.hub:
            raise Untrusted("the hub's identity changed meanwhile; run it again")
        return status.identity_sig

    def pages(self, stream: str, from_seq: int, to_seq: int) -> Iterator[tuple[Pair, ...]]:
        return replay(self._session, self._log(stream), Range(from_seq=from_seq, to_seq=to_seq))

    def range_proof(self, stream: str, from_seq: int, to_seq: int, size: int) -> RangeProof:
        return self._session.api.range_proof(self._log(stream).label, from_seq, to_seq, size)

    def first_at(self, stream: str, hub_ts: int) -> int | None:
        label = self._log(stream).label
        try:
            places = self._session.api.locate(LocateRequest(label=label, hub_ts=hub_ts))
        except HubRefused as error:
            if not head.is_missing(error):
                raise
            return None
        return places[0].stream_seq if places else None

    def head_seq(self, stream: str) -> int:
        found = head.head(self._session, self._log(stream), 0)
        return found.stream_seq if found else 0

    def open_pair(self, pair: Pair) -> Opened:
        return reader.open_pair(self._session, pair, DEFAULT_PROFILE)

    def _log(self, stream: str) -> Log:
        return Log(self._session.labels(stream, DEFAULT_PROFILE), stream, 0)
