"""Which stream each label of an archived hub is of, learnt from its control log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recorder.archive.manifest import LabelManifest
from spark_jobs.audit_terms import AuditTerms
from spark_jobs.event_rows import Stream
from spark_jobs.log_files import in_archive
from spark_jobs.store_door import StoreDoor
from veen.audit.context import Context, Depth
from veen.audit.engine import Log, audit_log, in_order
from veen.audit.stock import Stock
from veen.audit.trust import TrustCheck
from veen.control import StreamRecord, control_label
from veen.errors import Untrusted
from veen.profile import Profile


@dataclass(frozen=True, slots=True)
class KnownStreams:
    """As the control log and the terms tell."""

    context: Context
    names: Mapping[bytes, str]

    def of(self, label: LabelManifest) -> Stream:
        origin = self.context.origin(label.label, label.parts[0].first_ts)
        if origin is None:
            return Stream(None, None)
        stream_id = origin.labels.stream_id
        return Stream(self.names.get(stream_id), stream_id)

    def profiles(self) -> dict[bytes, Profile]:
        known = [*self.context.streams.fixed.values(), *self.context.streams.rolling]
        learnt = {one.labels.profile.profile_id(): one.labels.profile for one in known}
        return {**self.context.profiles, **learnt}


def learn_streams(door: StoreDoor, hub_id: bytes, terms: AuditTerms) -> KnownStreams:
    """Audit the control label, by which streams are known; a faulty one is refused."""
    inventory, trust = in_archive(door, hub_id), TrustCheck()
    context = terms.context(trust.read_hub(inventory.files.read), Depth.FULL)
    log = inventory.log()
    control = control_label(hub_id)
    alone = Stock({control: log.stock.of(control)})
    acknowledged = {one: upto for one, upto in log.acknowledged.items() if one == control}
    (found,) = audit_log(
        Log(stock=alone, read=log.read, acknowledged=acknowledged), context, in_order(log.read)
    ).labels
    if trust.faults or found.faults:
        first = (*trust.faults, *found.faults)[0]
        raise Untrusted(f"{first.file} at byte {first.offset}: {first.what}; run verify_log")
    records = [*terms.streams, *(one for told in found.told for one in told.record.streams())]
    return KnownStreams(context.told(found.told, is_whole=True), _names(records))


def _names(records: Iterable[StreamRecord]) -> dict[bytes, str]:
    names: dict[bytes, str] = {}
    for one in records:
        if not one.is_nameless():
            names.setdefault(one.stream_id(), one.name)
    return names
