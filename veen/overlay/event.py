"""An event as an overlay sees it: its place in the log, and what a reader opened (spec 11)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One message at its place. A message that the reader's key does not open has no schema."""

    stream_seq: int
    hub_ts: int
    client_id: bytes
    schema: bytes
    body: bytes

    @classmethod
    def unopened(cls, *, stream_seq: int, hub_ts: int, client_id: bytes) -> Event:
        return cls(
            stream_seq=stream_seq, hub_ts=hub_ts, client_id=client_id, schema=b"", body=b""
        )  # fmt: skip

    @property
    def is_open(self) -> bool:
        return self.schema != b""
