"""The last link of K1: the zone's own record of each import (AGB0 5.2).

For each imported bundle, ``record/infrastructure/imports`` has one event ``import.completed``. It
is written by an identity that writes nothing else, and read here as any other message: it counts
only if it can be opened and is in the hub's log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from bridge.connect import author_of
from bridge.reconcile.collect import if_there
from bridge.settings import BridgeSettings
from bridge.stream_map import COMPLETED, IMPORTS
from veen.client.client import Client
from veen.client.log_head import Pair
from veen.client.transport import HubRefused
from veen.errors import Malformed, Unopenable, Untrusted, VeenError
from veen.events import read_event
from veen.foreign import Foreign


class Completed(NamedTuple):
    """The recorded import of a bundle; ``placed`` is None if no event of the bundle was new."""

    seq: int
    bundle_id: bytes
    hub_id: bytes
    stream: str
    source: tuple[int, int]
    target: str
    placed: tuple[int, int] | None

    def covers(self, hub_id: bytes, stream: str, seq: int, target: str, place: int) -> bool:
        """Whether this record covers an event of the bundle at its place here."""
        is_source = (self.hub_id, self.stream) == (hub_id, stream) and _has(self.source, seq)
        return is_source and self.target == target and _has(self.placed, place)


class Completions(NamedTuple):
    """Records by bundle_id; ``unread`` is why the stream could not be read."""

    by_bundle: Mapping[bytes, list[Completed]]
    unread: str | None = None


NONE_READ = Completions({}, f"{IMPORTS} was not read")


def read_completions(settings: BridgeSettings, reader: Client) -> Completions:
    """Every ``import.completed`` of this zone, or why the reader may not read the stream."""
    author = author_of(settings.import_recorder) if settings.import_recorder else None
    by_bundle: dict[bytes, list[Completed]] = defaultdict(list)
    try:
        for completed in if_there(_completed(reader, author)):
            by_bundle[completed.bundle_id].append(completed)
    except HubRefused as error:
        return Completions({}, f"{IMPORTS} cannot be read by [reader]: {error}")
    return Completions(dict(by_bundle))


def _completed(reader: Client, author: bytes | None) -> Iterator[Completed]:
    foreign = Foreign(_unread, author)
    for pair in reader.read(IMPORTS):
        seq, client_id = pair.receipt.stream_seq, pair.msg.client_id
        try:
            yield from _completed_event(reader, pair)
        except (Malformed, Unopenable) as error:
            foreign.unread(seq, client_id, error)
            continue
        foreign.read(client_id)
    foreign.finish()


def _completed_event(reader: Client, pair: Pair) -> Iterator[Completed]:
    opened = reader.open_payload(pair.msg)
    event = read_event(opened.header.schema, opened.body, pair.msg.client_id)
    if event.event_type == COMPLETED:
        yield _parsed(pair.receipt.stream_seq, event.subject_id, event.value())


def _parsed(seq: int, subject: str, payload: Any) -> Completed:
    try:
        completed = Completed(
            seq,
            bytes.fromhex(payload["bundle_id"]),
            bytes.fromhex(payload["source_hub_id"]),
            str(payload["source_stream"]),
            (int(payload["source_from"]), int(payload["source_to"])),
            str(payload["import_stream"]),
            _span(payload["import_from"], payload["import_to"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"{COMPLETED}: a field is missing or of another type: {error!r}") from error
    if subject != f"bundle:{completed.bundle_id.hex()}":
        raise Malformed(
            f"{COMPLETED}: expected the subject bundle:{completed.bundle_id.hex()}, got {subject}"
        )
    return completed


def _span(first: Any, last: Any) -> tuple[int, int] | None:
    return None if first is None and last is None else (int(first), int(last))


def _has(span: tuple[int, int] | None, seq: int) -> bool:
    return span is not None and span[0] <= seq <= span[1]


def _refused(stream: str, seq: int, error: VeenError) -> VeenError:
    untrusted = Untrusted(
        f"{stream}, stream_seq {seq}: {error}; it must be sealed to the identity that reads the "
        "imports ([audit] reader)"
    )
    untrusted.__cause__ = error
    return untrusted


_unread = partial(_refused, IMPORTS)
