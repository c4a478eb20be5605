"""Events in the clear: what a reader's keys open of the entries of a log, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from spark_jobs.chunk_window import ArchivedChunk, Placed
from veen.errors import Unopenable, Untrusted
from veen.hub_identity import HubIdentity
from veen.limits import Limits
from veen.msg import Msg
from veen.profile import Profile
from veen.seal import Opened, open_with_any

DAY_SEC: Final = 86_400

# expires_at is for the client to choose, up to 2^64 - 1. No column is called stream or day: the
# folders are.
ARROW: Final = pa.schema(
    [
        ("stream_name", pa.string()),
        ("stream_id", pa.binary()),
        ("label", pa.binary()),
        ("stream_seq", pa.int64()),
        ("hub_ts", pa.int64()),
        ("client_id", pa.binary()),
        ("msg_id", pa.binary()),
        ("opened", pa.bool_()),
        ("schema", pa.binary()),
        ("body", pa.binary()),
        ("parent_id", pa.binary()),
        ("att_root", pa.binary()),
        ("expires_at", pa.uint64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream of a label; both are None when the control log does not tell."""

    name: str | None
    stream_id: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readership:
    """What the events of a hub are opened with, and checked by."""

    hub: HubIdentity
    limits: Limits
    profiles: Mapping[bytes, Profile]
    keys: Sequence[bytes] = field(default=(), repr=False)

    def rows(
        self, entries: Sequence[Placed], stream: Stream, chunk: ArchivedChunk
    ) -> Iterator[tuple[Any, ...]]:
        """A row an entry; an entry that is not what client and hub signed is refused."""
        for placed in entries:
            msg, receipt = placed.framed.msg, placed.framed.receipt
            try:
                self.hub.verify_receipt(receipt)
                _verify(msg, receipt.leaf_hash)
            except Untrusted as error:
                where = f"{chunk.file} at byte {placed.at}"
                raise Untrusted(f"{where}: {error}; verify_log tells more") from error
            opened = self._opened(msg)
            header = opened.header if opened else None
            yield (
                stream.name, stream.stream_id, receipt.label, receipt.stream_seq, receipt.hub_ts,
                msg.client_id, receipt.leaf_hash, opened is not None,
                header and header.schema, opened.body if opened else None,
                header and header.parent_id, header and header.att_root,
                header.expires_at if header else None,
            )  # fmt: skip

    def _opened(self, msg: Msg) -> Opened | None:
        """What the first key that fits opens; None when none does."""
        profile = self.profiles.get(msg.profile_id)
        if profile is None:
            return None
        try:
            return open_with_any(list(self.keys), msg, profile, self.limits)
        except Unopenable:
            return None


def by_day(rows: Iterator[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    """Rows under the UTC day of their hub_ts, counted from 1970."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[4] // DAY_SEC, []).append(row)
    return found


def batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, ARROW.types, strict=True)]
    return pa.record_batch(arrays, schema=ARROW)


def _verify(msg: Msg, leaf_hash: bytes) -> None:
    if not msg.signature_is_valid():
        raise Untrusted("the message is not signed by its client")
    if msg.leaf_hash() != leaf_hash:
        raise Untrusted("the receipt is for another message")
