"""What a proof package shows once it is verified, each fact worked out from those before it."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from recorder.query.digest import SpokenUpTo
from recorder.query.entry import Entry
from recorder.query.evidence import Placed, WitnessCheck, receipted
from recorder.query.package import Package, Recorded
from recorder.query.select import matches
from recorder.query.trust import Trust
from veen import canonical_json
from veen.client.trust import newest
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.import_event import SCHEMA as IMPORTED
from veen.import_event import is_import, read_imported
from veen.msg import Msg
from veen.profile import DEFAULT_PROFILE
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.seal import open_body

REQUESTS: Final = "record/query/requests"
RESULTS: Final = "record/query/results"
SUBMITTED: Final = "query.submitted"
RESULT: Final = "query.result"


class NotCovered(Exception):
    """The package does not speak of this; it says what would."""


class Facts:
    """Facts of a package, given what the verifier trusts.

    A fact is worked out once. One that rests on another that does not hold raises the same.
    """

    def __init__(self, package: Package, trust: Trust) -> None:
        self.package = package
        self.descriptor = package.descriptor
        self.digest = package.digest
        self._trust = trust

    @cached_property
    def hub(self) -> HubIdentity:
        found = self.package.hub
        trusted = self._trust.hub_id
        if found.hub_id != trusted:
            raise Untrusted(f"a package of hub {found.hub_id.hex()}, not of {trusted.hex()}")
        found.verify(self.package.hub_signature)
        known = self._trust.identity
        return found if known is None else newest(known, found)

    def verify_newest(self) -> str:
        """Which identity the signatures were verified by; NotCovered where only the package's."""
        used = self.hub.described()
        if self._trust.identity is None:
            raise NotCovered(
                f"{used}, is the package's own: a newer one, in which that key has retired, may "
                "exist; give the newest you know (--hub-identity, --known-hubs)"
            )
        return f"{used}, is no older than the newest one known here"

    @cached_property
    def checkpoint(self) -> RecorderCheckpoint:
        found, digest = self.package.checkpoint, self.digest
        found.verify(self.hub)
        if SpokenUpTo.of(found) != digest.checkpoint:
            raise Untrusted("the digest speaks up to another checkpoint")
        if (found.hub_id.hex(), found.profile_id.hex()) != (digest.hub_id, digest.profile_id):
            raise Untrusted("the digest names another hub or profile than its checkpoint")
        return found

    @cached_property
    def later_checkpoint(self) -> RecorderCheckpoint:
        found = self.package.later_checkpoint
        if found is None:
            raise NotCovered("the package has no checkpoint made after the result was recorded")
        found.verify(self.hub)
        found.verify_follows(self.checkpoint)
        return found

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The witnessed events: in the log, in the order of rows, searched, and matching."""
        check = WitnessCheck(self.hub, self.checkpoint)
        found = tuple(check.entry(one.witness, one.stream) for one in self.package.witnesses)
        self._verify_times(found)
        spans = {one.stream: one for one in self.digest.searched}
        for entry in found:
            span = spans.get(entry.stream)
            if span is None or not span.from_seq <= entry.seq <= span.to_seq:
                raise Untrusted(f"{entry.stream} {entry.seq} is outside of what was searched")
            if not matches(self.descriptor, entry):
                raise Untrusted(f"{entry.stream} {entry.seq} is not what was asked for")
        self._verify_order(found)
        return found

    def _verify_times(self, entries: tuple[Entry, ...]) -> None:
        """None is later than the checkpoint, nor than the key that signed its stream's."""
        last: dict[str, int] = {}
        for one in entries:
            last[one.stream] = max(last.get(one.stream, 0), one.hub_ts)
        for stream, hub_ts in last.items():
            self.checkpoint.verify_entry_time(self.hub, stream, hub_ts)

    def verify_origins(self) -> int:
        """How many witnessed events the hubs of their origins have signed for; a package has no
        identity of these hubs, so NotCovered where none is known here.
        """
        found = [one for one in self.package.witnesses if is_import(one.stream)]
        if not found:
            raise NotCovered("no imported event is witnessed")
        for one in found:
            msg = Msg.decode(one.witness.msg)
            body = open_body(body_key=one.witness.body_key, msg=msg, profile=DEFAULT_PROFILE)
            event = read_imported(IMPORTED, body, msg.client_id)
            hub = self._trust.origin(event.source_hub_id)
            if hub is None:
                raise NotCovered(
                    f"no identity of hub {event.source_hub_id.hex()} is known here, so that it "
                    "signed for these events is the recorder's word (--known-hubs)"
                )
            event.verify(hub)
        return len(found)

    @cached_property
    def request(self) -> Entry:
        return self._recorded(self.package.request, REQUESTS, SUBMITTED, self.descriptor.encode())

    @cached_property
    def result(self) -> Entry:
        return self._recorded(self.package.result, RESULTS, RESULT, self.digest.encode())

    def verify_recorder(self, entry: Entry) -> None:
        """Refuse unless a trusted recorder signed the entry; NotCovered when none was named."""
        if entry.event is None:
            raise Untrusted(f"{entry.stream} {entry.seq} is no recorder event")
        signer, trusted = entry.event.principal_id, self._trust.recorder_ids
        if not trusted:
            raise NotCovered(
                f"{entry.stream} {entry.seq} was recorded by client {signer.hex()}, and no "
                "recorder's client_id was given to compare it with (--recorder-id)"
            )
        if signer not in trusted:
            named = ", ".join(sorted(one.hex() for one in trusted))
            raise Untrusted(
                f"{entry.stream} {entry.seq}: recorded by client {signer.hex()}, expected {named}"
            )

    def verify_in_log(self, entry: Entry, recorded: Recorded | None) -> None:
        if recorded is None or recorded.inclusion is None:
            raise NotCovered("the package has the hub's receipt, and no proof at a checkpoint")
        self.later_checkpoint.verify_entry_time(self.hub, entry.stream, entry.hub_ts)
        WitnessCheck(self.hub, self.later_checkpoint).verify_included(recorded.inclusion, entry)

    def _recorded(self, one: Recorded | None, stream: str, kind: str, due: bytes) -> Entry:
        if one is None:
            raise NotCovered(f"the package has no event of {stream}")
        place = Placed(stream, self.hub)
        entry = receipted(one.msg, one.receipt, one.body_key, place)
        event = entry.event
        if event is None or event.event_type != kind:
            raise Untrusted(f"{stream} {entry.seq} is no {kind}")
        if canonical_json.encode(event.value()) != due:
            raise Untrusted(f"{stream} {entry.seq} records something else")
        return entry

    def _verify_order(self, entries: tuple[Entry, ...]) -> None:
        indexes = [one.index for one in self.package.witnesses]
        keys = [entry.order_key for entry in entries]
        if indexes != sorted(set(indexes)) or keys != sorted(set(keys)):
            raise Untrusted("the witnessed events are not in the order of rows")
