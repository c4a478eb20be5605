"""A query of the other zone as its own streams tell it: descriptor and digest that were imported.

Both travel like any event: in record/query/requests and record/query/results (Query API 9.1, 9.2).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recorder.index import imports
from recorder.index.home import IndexHome
from recorder.index.snapshot import Snapshot, snapshot
from recorder.index.tables import StreamRow
from recorder.query.descriptor import BadDescriptor, Descriptor, read_descriptor
from recorder.query.digest import ResultDigest
from recorder.query.evidence import Placed, receipted
from recorder.query.package_facts import REQUESTS, RESULT, RESULTS, SUBMITTED
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import HubIdentity

_log = logging.getLogger(__name__)
_NAMING = """
SELECT p.msg, p.receipt, p.body_key FROM events e JOIN pairs p USING (place)
WHERE e.stream_no = ? AND e.event_type = ? AND instr(e.payload, ?) ORDER BY e.place"""


class NotRecorded(VeenError):
    """No digest or descriptor of that name is here, or more than one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query by its query_id or its result_id; of one hub, or of whichever has it."""

    field: str
    value: str
    hub_id: bytes | None

    def __str__(self) -> str:
        of = f" of hub {self.hub_id.hex()}" if self.hub_id else ""
        return f"{self.field} {self.value}{of}"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked and what was found, as ``hub`` has it in its log."""

    hub: HubIdentity
    descriptor: Descriptor
    digest: ResultDigest


def find(home: IndexHome, wanted: Wanted) -> Asked:
    """The one query of that name among those that were imported, or NotRecorded."""
    hubs = {one.hub_id: one for one in imports.read(home).hubs}
    with snapshot(home) as held:
        digests = list(_digests(held, wanted, hubs))
        if len(digests) != 1:
            raise NotRecorded(_told(wanted, digests))
        ((hub, digest),) = digests
        return Asked(hub, _descriptor(held, hub, digest), digest)


def _digests(
    held: Snapshot, wanted: Wanted, hubs: Mapping[bytes, HubIdentity]
) -> Iterator[tuple[HubIdentity, ResultDigest]]:
    for row in held.streams():
        hub = hubs.get(row.hub_id)
        if row.name != RESULTS or hub is None or wanted.hub_id not in (None, row.hub_id):
            continue
        for value in _values(held, row, hub, RESULT, wanted.value):
            try:
                digest = ResultDigest.read(value)
            except Malformed as error:
                # Whoever may write there may name any query in an event that is no digest.
                _log.warning("%s: an event that names %s is no digest: %s", RESULTS, wanted, error)
                continue
            if getattr(digest, wanted.field) == wanted.value:
                yield hub, digest


def _descriptor(held: Snapshot, hub: HubIdentity, digest: ResultDigest) -> Descriptor:
    rows = [one for one in held.streams() if (one.hub_id, one.name) == (hub.hub_id, REQUESTS)]
    for row in rows:
        for value in _values(held, row, hub, SUBMITTED, digest.query_id):
            try:
                found = read_descriptor(value)
            except BadDescriptor as error:
                _log.warning("%s: an event that names %s: %s", REQUESTS, digest.query_id, error)
                continue
            if found.digest() == digest.descriptor_hash:
                return found
    raise NotRecorded(
        f"the descriptor of {digest.query_id} is not here; bring {REQUESTS} of hub "
        f"{hub.hub_id.hex()} here, and take it up with veen recorder index imports"
    )


def _values(
    held: Snapshot, row: StreamRow, hub: HubIdentity, event_type: str, name: str
) -> Iterator[Any]:
    """The payloads of events that speak of ``name``, each opened again from what was signed."""
    for msg, receipt, body_key in held.db.execute(
        _NAMING, (row.stream_no, event_type, name.encode())
    ):
        event = receipted(msg, receipt, body_key, Placed(row.name, hub)).event
        if event is None or event.event_type != event_type:
            raise Untrusted(f"{row.name}: the index has another event than was signed")
        yield event.value()


def _told(wanted: Wanted, digests: list[tuple[HubIdentity, ResultDigest]]) -> str:
    if not digests:
        return (
            f"no digest of {wanted} was imported; bring {RESULTS} of the other zone here, and take "
            "it up with veen recorder index imports"
        )
    names = ", ".join(f"{one.result_id} of hub {hub.hub_id.hex()}" for hub, one in digests)
    return f"{wanted} has more than one result: {names}; give --result-id and --hub-id"
