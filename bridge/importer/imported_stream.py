"""An import stream, read back: which events of its source it holds, all of them verified."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from bridge.importer.ledger_tables import Run, Span, Stream
from bridge.stream_map import Route
from bridge.trust import TrustStore
from bridge.verify import trusted_hub
from veen.client.client import Client
from veen.client.pair import Pair
from veen.client.progress import Progress, untold
from veen.errors import Malformed, Untrusted, VeenError
from veen.foreign import Foreign
from veen.hub_identity import HubIdentity
from veen.import_event import ImportedEvent, read_imported

_log = logging.getLogger(__name__)


class Places(NamedTuple):
    """Where the events of a bundle stand in the import stream, how many they are, and how many of
    them are placeholders.
    """

    first: int
    last: int
    imported: int
    excluded: int


@dataclass(slots=True)
class Written:
    """``whole`` are the bundles whose last event is there."""

    stream: Stream
    target: str
    runs: list[Run] = field(default_factory=list)
    whole: set[bytes] = field(default_factory=set)
    places: dict[bytes, Places] = field(default_factory=dict)
    left_out: int = 0
    """Messages that others have written and that are no imported events."""

    def by_bundle(self) -> dict[bytes, list[Run]]:
        found: dict[bytes, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.bundle_id, []).append(run)
        return found


def read_import_stream(
    reader: Client,
    route: Route,
    trust: TrustStore,
    progress: Progress = untold,
    *,
    bridge_id: bytes | None = None,
) -> Written:
    """All of it, as ``bridge_id`` and other bridges before it have written it.

    A message that is no event of the route's source is left out and counted, unless a client that
    imports here has written it: then it is Untrusted.
    """
    found = Written(Stream(route.hub_id, route.source), route.target)
    held: dict[int, tuple[bytes, bytes]] = {}
    foreign = Foreign(partial(_refused, route.target), bridge_id)
    hub = trusted_hub(route.hub_id, trust)
    for pair in reader.read(route.target):
        seq, client_id = pair.receipt.stream_seq, pair.msg.client_id
        try:
            event = _event(reader, pair, route, hub)
        except (Malformed, Untrusted) as error:
            foreign.unread(seq, client_id, error)
            found.left_out += 1
            _log.warning("%s, stream_seq %d is left out: %s", route.target, seq, error)
            continue
        foreign.read(client_id)
        receipt = event.receipt()
        if receipt.stream_seq in held:
            again = f"event {receipt.stream_seq} of {route.source} once more"
            raise _refused(route.target, seq, Untrusted(again))
        held[receipt.stream_seq] = event.bundle_id, receipt.leaf_hash + receipt.mmr_root
        _note(found, event, seq)
        progress(len(held), None)
    foreign.finish()
    found.runs = _runs(held)
    return found


def _event(reader: Client, pair: Pair, route: Route, hub: HubIdentity) -> ImportedEvent:
    opened = reader.open_payload(pair.msg)
    event = read_imported(opened.header.schema, opened.body, pair.msg.client_id)
    if (event.source_hub_id, event.origin_stream) != (route.hub_id, route.source):
        raise Untrusted("an event of another stream or hub than the settings name")
    event.verify(hub)
    return event


def _refused(target: str, seq: int, error: VeenError) -> VeenError:
    found = Untrusted(f"{target}, stream_seq {seq}: {error}")
    found.__cause__ = error
    return found


def _note(found: Written, event: ImportedEvent, seq: int) -> None:
    known = found.places.get(event.bundle_id, Places(seq, seq, 0, 0))
    excluded = known.excluded + (event.excluded is not None)
    found.places[event.bundle_id] = Places(known.first, seq, known.imported + 1, excluded)
    if event.is_last:
        found.whole.add(event.bundle_id)


def _runs(held: dict[int, tuple[bytes, bytes]]) -> list[Run]:
    """Events that follow each other and came in one bundle are one run."""
    found: list[Run] = []
    parts: list[bytes] = []
    for seq in sorted(held):
        bundle_id, entry = held[seq]
        last = found[-1] if found else None
        if last is not None and last.bundle_id == bundle_id and last.span.last == seq - 1:
            found[-1] = last._replace(span=Span(last.span.first, seq))
            parts[-1] += entry
        else:
            found.append(Run(Span(seq, seq), bundle_id, b""))
            parts.append(entry)
    return [run._replace(entries=part) for run, part in zip(found, parts, strict=True)]
