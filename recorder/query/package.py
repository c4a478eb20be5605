"""The proof package: a result with all that is needed to verify it offline, in one file.

It is canonical JSON, so that a package has exactly one encoding; bytes are lowercase hex (Query API
3.1). Nothing in a package is trusted: the verifier supplies the trusted identities, and each
verified fact is derived from those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from recorder.query.descriptor import (
    Descriptor,
    DescriptorShape,
    JsonLimits,
    read_canonical,
    read_descriptor,
)
from recorder.query.digest import ResultDigest, SpokenUpTo
from recorder.query.evidence import VerifiedStream, Witness, WitnessCheck, receipted
from recorder.query.select import QueryEntry, Row, matches
from recorder.service.errors import BadDescriptor
from veen.errors import LATER_RELEASE, Malformed, Untrusted, WrongVersion
from veen.events import IMPORT_SCHEMA as IMPORTED
from veen.events import is_import, read_imported
from veen.hub_identity import HubIdentity, newest_identity
from veen.label import DEFAULT_PROFILE
from veen.msg import Msg
from veen.payload import open_body
from veen.proofs import InclusionProof
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire import canonical_json

FORMAT: Final = "veen.query-proof"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 30
_MAX_DEPTH: Final = 40
_KEYS: Final = (
    "format", "version", "descriptor", "digest", "rows", "witnesses", "hub", "checkpoint",
    "later_checkpoint", "request", "result", "anchors",
)  # fmt: skip
REQUESTS: Final = "record/query/requests"
RESULTS: Final = "record/query/results"
SUBMITTED: Final = "query.submitted"
RESULT: Final = "query.result"


@dataclass(frozen=True, slots=True)
class ShownWitness:
    """The witness of the matching event ``index``, from 0 in row order."""

    index: int
    stream: str
    witness: Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMessage:
    """The message in which the recorder recorded a request or a result, and its receipt.

    It is later than the checkpoint of the result; ``inclusion`` is at the later checkpoint.
    """

    msg: bytes
    receipt: bytes
    body_key: bytes
    inclusion: InclusionProof | None


@dataclass(frozen=True, slots=True)
class PackageAnchor:
    """An anchor of the checkpoint; the format of ``ref`` depends on the kind."""

    kind: str
    ref: bytes


@dataclass(frozen=True, slots=True)
class RowHashes:
    """The hash of each row, for a package without the rows."""

    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The decoded contents of a proof package."""

    descriptor: Descriptor
    digest: ResultDigest
    rows: tuple[Row, ...] | RowHashes
    witnesses: tuple[ShownWitness, ...]
    hub: HubIdentity
    hub_signature: bytes
    checkpoint: RecorderCheckpoint
    later_checkpoint: RecorderCheckpoint | None
    request: RecordedMessage | None
    result: RecordedMessage | None
    anchors: tuple[PackageAnchor, ...]

    def encode(self) -> bytes:
        later = self.later_checkpoint
        return canonical_json.encode(
            {
                "format": FORMAT,
                "version": VERSION,
                "descriptor": self.descriptor.document(),
                "digest": self.digest.document(),
                "rows": _rows_document(self.rows),
                "witnesses": [_witness_document(witness) for witness in self.witnesses],
                "hub": {
                    "identity": self.hub.encode().hex(),
                    "signature": self.hub_signature.hex(),
                },
                "checkpoint": self.checkpoint.encode().hex(),
                "later_checkpoint": None if later is None else later.encode().hex(),
                "request": _recorded_document(self.request),
                "result": _recorded_document(self.result),
                "anchors": [
                    {"kind": anchor.kind, "ref": anchor.ref.hex()} for anchor in self.anchors
                ],
            }
        )

    @classmethod
    def decode(cls, raw: bytes, max_bytes: int = MAX_BYTES) -> Package:
        """Decode the canonical form of a package, or raise Malformed; nothing is verified yet."""
        value = read_canonical(raw, JsonLimits(max_bytes=max_bytes, max_depth=_MAX_DEPTH))
        shape = DescriptorShape.of(value, "the package", _KEYS)
        if shape.value("format") != FORMAT:
            raise Malformed(f"expected the format {FORMAT!r}, got {shape.value('format')!r:.60}")
        if shape.value("version") != VERSION:
            raise WrongVersion(
                f"expected version {VERSION}, got {shape.value('version')!r:.60}: {LATER_RELEASE}"
            )
        hub = DescriptorShape.of(shape.value("hub"), "package.hub", ("identity", "signature"))
        return cls(
            descriptor=_descriptor(shape.value("descriptor")),
            digest=ResultDigest.read(shape.value("digest")),
            rows=_rows(shape.value("rows")),
            witnesses=tuple(_witness(witness) for witness in shape.array("witnesses")),
            hub=HubIdentity.decode(hub.octets("identity")),
            hub_signature=hub.octets("signature"),
            checkpoint=RecorderCheckpoint.decode(shape.octets("checkpoint")),
            later_checkpoint=_later(shape),
            request=_recorded(shape.value("request"), "package.request"),
            result=_recorded(shape.value("result"), "package.result"),
            anchors=tuple(_anchor(anchor) for anchor in shape.array("anchors")),
        )


def _descriptor(value: Any) -> Descriptor:
    try:
        return read_descriptor(value)
    except BadDescriptor as error:
        raise Malformed(f"package.descriptor: {error}") from error


def _later(shape: DescriptorShape) -> RecorderCheckpoint | None:
    if shape.value("later_checkpoint") is None:
        return None
    return RecorderCheckpoint.decode(shape.octets("later_checkpoint"))


def _rows_document(rows: tuple[Row, ...] | RowHashes) -> dict[str, Any]:
    if isinstance(rows, RowHashes):
        return {"hashes": [hash_.hex() for hash_ in rows.hashes]}
    return {"whole": list(rows)}


def _rows(value: Any) -> tuple[Row, ...] | RowHashes:
    if isinstance(value, dict) and "hashes" in value:
        hashes = DescriptorShape.of(value, "package.rows", ("hashes",)).array("hashes")
        shapes = (DescriptorShape("package.rows", {"hash": hash_}) for hash_ in hashes)
        return RowHashes(tuple(bytes.fromhex(shape.hash("hash")) for shape in shapes))
    rows = DescriptorShape.of(value, "package.rows", ("whole",)).array("whole")
    if not all(isinstance(row, dict) for row in rows):
        raise Malformed("package.rows: expected an object for each row")
    return tuple(rows)


def _witness_document(witness: ShownWitness) -> dict[str, Any]:
    return {
        "index": witness.index,
        "stream": witness.stream,
        "msg": witness.witness.msg.hex(),
        "receipt": witness.witness.receipt.hex(),
        "body_key": witness.witness.body_key.hex(),
        "inclusion": witness.witness.inclusion.encode().hex(),
    }


def _witness(value: Any) -> ShownWitness:
    keys = ("index", "stream", "msg", "receipt", "body_key", "inclusion")
    shape = DescriptorShape.of(value, "package.witnesses", keys)
    witness = Witness(
        msg=shape.octets("msg"),
        receipt=shape.octets("receipt"),
        body_key=bytes.fromhex(shape.hash("body_key")),
        inclusion=InclusionProof.decode(shape.octets("inclusion")),
    )
    return ShownWitness(shape.number("index"), shape.name("stream"), witness)


def _recorded_document(message: RecordedMessage | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {
        "msg": message.msg.hex(),
        "receipt": message.receipt.hex(),
        "body_key": message.body_key.hex(),
        "inclusion": None if message.inclusion is None else message.inclusion.encode().hex(),
    }


def _recorded(value: Any, place: str) -> RecordedMessage | None:
    if value is None:
        return None
    shape = DescriptorShape.of(value, place, ("msg", "receipt", "body_key", "inclusion"))
    absent = shape.value("inclusion") is None
    return RecordedMessage(
        msg=shape.octets("msg"),
        receipt=shape.octets("receipt"),
        body_key=bytes.fromhex(shape.hash("body_key")),
        inclusion=None if absent else InclusionProof.decode(shape.octets("inclusion")),
    )


def _anchor(value: Any) -> PackageAnchor:
    shape = DescriptorShape.of(value, "package.anchors", ("kind", "ref"))
    return PackageAnchor(shape.name("kind"), shape.octets("ref"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTrust:
    """What the verifier trusts, obtained by another way than the package.

    ``recorder_ids`` are the client_ids that may record queries and results; without any, the
    package cannot be proven, since any client with write access could have recorded them.
    """

    hub_id: bytes
    recorder_ids: frozenset[bytes] = frozenset()
    identity: HubIdentity | None = None
    """The newest identity of the hub known here. The package contains one too, but in an old
    package a key that has retired since still counts as current.
    """
    origin: Callable[[bytes], HubIdentity | None] = lambda _hub_id: None
    """Returns the identity of a hub that imported events come from, if it is known here."""


class NotCovered(Exception):
    """The package does not cover a claim; the message says what would."""


class PackageFacts:
    """Facts of a package, given what the verifier trusts.

    A fact is computed once. A fact that depends on one that failed raises the same error.
    """

    def __init__(self, package: Package, trust: PackageTrust) -> None:
        self.package = package
        self.descriptor = package.descriptor
        self.digest = package.digest
        self._trust = trust

    @cached_property
    def hub(self) -> HubIdentity:
        hub = self.package.hub
        trusted = self._trust.hub_id
        if hub.hub_id != trusted:
            raise Untrusted(f"expected a package of hub {trusted.hex()}, got {hub.hub_id.hex()}")
        hub.verify(self.package.hub_signature)
        known = self._trust.identity
        return hub if known is None else newest_identity(known, hub)

    def verify_newest(self) -> str:
        """Describe the identity that signatures were verified with.

        Raises NotCovered if only the package's is known.
        """
        used = self.hub.described()
        if self._trust.identity is None:
            raise NotCovered(
                f"{used}, is the package's own: a newer one, in which that key has retired, may "
                "exist; give the newest you know (--hub-identity, --known-hubs)"
            )
        return f"{used}, is no older than the newest one known here"

    @cached_property
    def checkpoint(self) -> RecorderCheckpoint:
        checkpoint, digest = self.package.checkpoint, self.digest
        checkpoint.verify(self.hub)
        if SpokenUpTo.of(checkpoint) != digest.checkpoint:
            raise Untrusted("the digest is of another checkpoint than the package")
        if (checkpoint.hub_id.hex(), checkpoint.profile_id.hex()) != (
            digest.hub_id,
            digest.profile_id,
        ):
            raise Untrusted("the digest names another hub or profile than its checkpoint")
        return checkpoint

    @cached_property
    def later_checkpoint(self) -> RecorderCheckpoint:
        checkpoint = self.package.later_checkpoint
        if checkpoint is None:
            raise NotCovered("the package has no checkpoint made after the result was recorded")
        checkpoint.verify(self.hub)
        checkpoint.verify_follows(self.checkpoint)
        return checkpoint

    @cached_property
    def entries(self) -> tuple[QueryEntry, ...]:
        """The witnessed events: in the log, in row order, within the searched ranges, and
        matching."""
        check = WitnessCheck(self.hub, self.checkpoint)
        entries = tuple(
            check.entry(witness.witness, witness.stream) for witness in self.package.witnesses
        )
        self._verify_times(entries)
        spans = {searched.stream: searched for searched in self.digest.searched}
        for entry in entries:
            span = spans.get(entry.stream)
            if span is None or not span.from_seq <= entry.seq <= span.to_seq:
                raise Untrusted(f"{entry.stream} {entry.seq} is outside the searched range")
            if not matches(self.descriptor, entry):
                raise Untrusted(f"{entry.stream} {entry.seq} does not match the query")
        self._verify_order(entries)
        return entries

    def _verify_times(self, entries: tuple[QueryEntry, ...]) -> None:
        """No event is later than the checkpoint, or than the key that signed its stream's."""
        last: dict[str, int] = {}
        for entry in entries:
            last[entry.stream] = max(last.get(entry.stream, 0), entry.hub_ts)
        for stream, hub_ts in last.items():
            self.checkpoint.verify_entry_time(self.hub, stream, hub_ts)

    def verify_origins(self) -> int:
        """Count the witnessed events that the hubs of their origins have signed.

        A package has no identity of these hubs, so NotCovered where one is not known here.
        """
        imported = [witness for witness in self.package.witnesses if is_import(witness.stream)]
        if not imported:
            raise NotCovered("no imported event is witnessed")
        for shown in imported:
            msg = Msg.decode(shown.witness.msg)
            body = open_body(body_key=shown.witness.body_key, msg=msg, profile=DEFAULT_PROFILE)
            event = read_imported(IMPORTED, body, msg.client_id)
            hub = self._trust.origin(event.source_hub_id)
            if hub is None:
                raise NotCovered(
                    f"no identity of hub {event.source_hub_id.hex()} is known here, so its "
                    "signatures were not verified; give it with --known-hubs"
                )
            event.verify(hub)
        return len(imported)

    @cached_property
    def request(self) -> QueryEntry:
        return self._recorded(self.package.request, REQUESTS, SUBMITTED, self.descriptor.encode())

    @cached_property
    def result(self) -> QueryEntry:
        return self._recorded(self.package.result, RESULTS, RESULT, self.digest.encode())

    def verify_recorder(self, entry: QueryEntry) -> None:
        """Verify that a trusted recorder signed the entry; NotCovered when none was named."""
        if entry.event is None:
            raise Untrusted(f"{entry.stream} {entry.seq}: expected a recorder event")
        signer, trusted = entry.event.principal_id, self._trust.recorder_ids
        if not trusted:
            raise NotCovered(
                f"{entry.stream} {entry.seq} was recorded by client {signer.hex()}, and no "
                "recorder's client_id was given to compare it with (--recorder-id)"
            )
        if signer not in trusted:
            named = ", ".join(sorted(client_id.hex() for client_id in trusted))
            raise Untrusted(
                f"{entry.stream} {entry.seq}: recorded by client {signer.hex()}, expected {named}"
            )

    def verify_in_log(self, entry: QueryEntry, recorded: RecordedMessage | None) -> None:
        if recorded is None or recorded.inclusion is None:
            raise NotCovered(
                "the package has the hub's receipt, but no inclusion proof at a checkpoint"
            )
        self.later_checkpoint.verify_entry_time(self.hub, entry.stream, entry.hub_ts)
        WitnessCheck(self.hub, self.later_checkpoint).verify_included(recorded.inclusion, entry)

    def _recorded(
        self, message: RecordedMessage | None, stream: str, kind: str, expected: bytes
    ) -> QueryEntry:
        if message is None:
            raise NotCovered(f"the package has no event of {stream}")
        place = VerifiedStream(stream, self.hub)
        entry = receipted(message.msg, message.receipt, message.body_key, place)
        event = entry.event
        if event is None or event.event_type != kind:
            raise Untrusted(f"{stream} {entry.seq}: expected an event of type {kind}")
        if canonical_json.encode(event.value()) != expected:
            raise Untrusted(f"{stream} {entry.seq}: the recorded payload differs from the package")
        return entry

    def _verify_order(self, entries: tuple[QueryEntry, ...]) -> None:
        indexes = [witness.index for witness in self.package.witnesses]
        keys = [entry.order_key for entry in entries]
        if indexes != sorted(set(indexes)) or keys != sorted(set(keys)):
            raise Untrusted("the witnessed events are not in the order of rows")
