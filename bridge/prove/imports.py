"""K1's last link: what the zone's own recorder says of each import (AGB0 5.2).

One event ``import.completed`` stands in ``record/infrastructure/imports`` for each imported bundle.
It is written by an identity that writes nothing else, and read here as any other message: only
what is opened and stands in the hub's log counts.
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
    """What an event says of the import of its bundle; ``placed`` is None where no event of the
    bundle was new.
    """

    seq: int
    bundle_id: bytes
    hub_id: bytes
    stream: str
    source: tuple[int, int]
    target: str
    placed: tuple[int, int] | None

    def tells_of(self, hub_id: bytes, stream: str, seq: int, target: str, place: int) -> bool:
        """Whether an event of the bundle, at its place here, is one that this speaks of."""
        is_source = (self.hub_id, self.stream) == (hub_id, stream) and _has(self.source, seq)
        return is_source and self.target == target and _has(self.placed, place)


class Completions(NamedTuple):
    """By bundle_id; ``unread`` says why the stream could not be read."""

    by_bundle: Mapping[bytes, list[Completed]]
    unread: str | None = None


NONE_READ = Completions({}, f"{IMPORTS} was not read")


def read_completions(settings: BridgeSettings, reader: Client) -> Completions:
    """Every ``import.completed`` of this zone; a stream that the reader may not read is told."""
    author = author_of(settings.import_recorder) if settings.import_recorder else None
    result: dict[bytes, list[Completed]] = defaultdict(list)
    try:
        for item in if_there(_completed(reader, author)):
            result[item.bundle_id].append(item)
    except HubRefused as error:
        return Completions({}, f"{IMPORTS} cannot be read by [reader]: {error}")
    return Completions(dict(result))


def _completed(reader: Client, author: bytes | None) -> Iterator[Completed]:
    foreign = Foreign(_unread, author)
    for pair in reader.read(IMPORTS):
        seq, client_id = pair.receipt.stream_seq, pair.msg.client_id
        try:
            yield from _said(reader, pair)
        except (Malformed, Unopenable) as error:
            foreign.unread(seq, client_id, error)
            continue
        foreign.read(client_id)
    foreign.finish()


def _said(reader: Client, pair: Pair) -> Iterator[Completed]:
    opened = reader.open_payload(pair.msg)
    event = read_event(opened.header.schema, opened.body, pair.msg.client_id)
    if event.event_type == COMPLETED:
        yield _parsed(pair.receipt.stream_seq, event.subject_id, event.value())


def _parsed(seq: int, subject: str, said: Any) -> Completed:
    try:
        completed = Completed(
            seq,
            bytes.fromhex(said["bundle_id"]),
            bytes.fromhex(said["source_hub_id"]),
            str(said["source_stream"]),
            (int(said["source_from"]), int(said["source_to"])),
            str(said["import_stream"]),
            _span(said["import_from"], said["import_to"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"{COMPLETED} without what it must say: {error!r}") from error
    if subject != f"bundle:{completed.bundle_id.hex()}":
        raise Malformed(f"{COMPLETED} of {subject}, which speaks of {completed.bundle_id.hex()}")
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
