"""The proof package: a result with all that is needed to check it offline, in one file.

It is canonical JSON, so that one package has one form; bytes are lowercase hex (Query API 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from recorder.query.descriptor import Descriptor, read_descriptor
from recorder.query.digest import ResultDigest
from recorder.query.evidence import Witness
from recorder.query.json_text import JsonLimits, read_canonical
from recorder.query.refusal import BadDescriptor
from recorder.query.select import Row
from recorder.query.shape import Shape
from veen import canonical_json
from veen.errors import Malformed
from veen.hub_identity import HubIdentity
from veen.inclusion import InclusionProof
from veen.recorder_checkpoint import RecorderCheckpoint

FORMAT: Final = "veen.query-proof"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 30
_MAX_DEPTH: Final = 40
_KEYS: Final = (
    "format", "version", "descriptor", "digest", "rows", "witnesses", "hub", "checkpoint",
    "later_checkpoint", "request", "result", "anchors",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shown:
    """The witness of the matching event number ``index``, from 0 on in the order of rows."""

    index: int
    stream: str
    witness: Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The message in which the recorder wrote down a request or a result, and its receipt.

    It comes after the checkpoint of the result; ``inclusion`` is at the later checkpoint.
    """

    msg: bytes
    receipt: bytes
    body_key: bytes
    inclusion: InclusionProof | None


@dataclass(frozen=True, slots=True)
class Anchored:
    """Where the root of the checkpoint was published; ``ref`` is read by the kind alone."""

    kind: str
    ref: bytes


@dataclass(frozen=True, slots=True)
class RowHashes:
    """The hash of each row, for a package that does not tell the rows."""

    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    descriptor: Descriptor
    digest: ResultDigest
    rows: tuple[Row, ...] | RowHashes
    witnesses: tuple[Shown, ...]
    hub: HubIdentity
    hub_signature: bytes
    checkpoint: RecorderCheckpoint
    later_checkpoint: RecorderCheckpoint | None
    request: Recorded | None
    result: Recorded | None
    anchors: tuple[Anchored, ...]

    def encode(self) -> bytes:
        later = self.later_checkpoint
        return canonical_json.encode(
            {
                "format": FORMAT,
                "version": VERSION,
                "descriptor": self.descriptor.document(),
                "digest": self.digest.document(),
                "rows": _rows_document(self.rows),
                "witnesses": [_shown_document(one) for one in self.witnesses],
                "hub": {
                    "identity": self.hub.encode().hex(),
                    "signature": self.hub_signature.hex(),
                },
                "checkpoint": self.checkpoint.encode().hex(),
                "later_checkpoint": None if later is None else later.encode().hex(),
                "request": _recorded_document(self.request),
                "result": _recorded_document(self.result),
                "anchors": [{"kind": one.kind, "ref": one.ref.hex()} for one in self.anchors],
            }
        )

    @classmethod
    def decode(cls, raw: bytes, max_bytes: int = MAX_BYTES) -> Package:
        """The package of which ``raw`` is the one form, or Malformed; nothing is verified yet."""
        value = read_canonical(raw, JsonLimits(max_bytes=max_bytes, max_depth=_MAX_DEPTH))
        found = Shape.of(value, "the package", _KEYS)
        if (found.value("format"), found.value("version")) != (FORMAT, VERSION):
            raise Malformed(f"no proof package of version {VERSION}")
        hub = Shape.of(found.value("hub"), "package.hub", ("identity", "signature"))
        return cls(
            descriptor=_descriptor(found.value("descriptor")),
            digest=ResultDigest.read(found.value("digest")),
            rows=_rows(found.value("rows")),
            witnesses=tuple(_shown(one) for one in found.array("witnesses")),
            hub=HubIdentity.decode(hub.octets("identity")),
            hub_signature=hub.octets("signature"),
            checkpoint=RecorderCheckpoint.decode(found.octets("checkpoint")),
            later_checkpoint=_later(found),
            request=_recorded(found.value("request"), "package.request"),
            result=_recorded(found.value("result"), "package.result"),
            anchors=tuple(_anchored(one) for one in found.array("anchors")),
        )


def _descriptor(value: Any) -> Descriptor:
    try:
        return read_descriptor(value)
    except BadDescriptor as error:
        raise Malformed(f"package.descriptor: {error}") from error


def _later(found: Shape) -> RecorderCheckpoint | None:
    if found.value("later_checkpoint") is None:
        return None
    return RecorderCheckpoint.decode(found.octets("later_checkpoint"))


def _rows_document(rows: tuple[Row, ...] | RowHashes) -> dict[str, Any]:
    if isinstance(rows, RowHashes):
        return {"hashes": [one.hex() for one in rows.hashes]}
    return {"whole": list(rows)}


def _rows(value: Any) -> tuple[Row, ...] | RowHashes:
    if isinstance(value, dict) and "hashes" in value:
        hashes = Shape.of(value, "package.rows", ("hashes",)).array("hashes")
        shapes = (Shape("package.rows", {"hash": one}) for one in hashes)
        return RowHashes(tuple(bytes.fromhex(shape.hash("hash")) for shape in shapes))
    rows = Shape.of(value, "package.rows", ("whole",)).array("whole")
    if not all(isinstance(row, dict) for row in rows):
        raise Malformed("package.rows: a row is an object")
    return tuple(rows)


def _shown_document(one: Shown) -> dict[str, Any]:
    return {
        "index": one.index,
        "stream": one.stream,
        "msg": one.witness.msg.hex(),
        "receipt": one.witness.receipt.hex(),
        "body_key": one.witness.body_key.hex(),
        "inclusion": one.witness.inclusion.encode().hex(),
    }


def _shown(value: Any) -> Shown:
    keys = ("index", "stream", "msg", "receipt", "body_key", "inclusion")
    found = Shape.of(value, "package.witnesses", keys)
    witness = Witness(
        msg=found.octets("msg"),
        receipt=found.octets("receipt"),
        body_key=bytes.fromhex(found.hash("body_key")),
        inclusion=InclusionProof.decode(found.octets("inclusion")),
    )
    return Shown(found.number("index"), found.name("stream"), witness)


def _recorded_document(one: Recorded | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "msg": one.msg.hex(),
        "receipt": one.receipt.hex(),
        "body_key": one.body_key.hex(),
        "inclusion": None if one.inclusion is None else one.inclusion.encode().hex(),
    }


def _recorded(value: Any, place: str) -> Recorded | None:
    if value is None:
        return None
    found = Shape.of(value, place, ("msg", "receipt", "body_key", "inclusion"))
    absent = found.value("inclusion") is None
    return Recorded(
        msg=found.octets("msg"),
        receipt=found.octets("receipt"),
        body_key=bytes.fromhex(found.hash("body_key")),
        inclusion=None if absent else InclusionProof.decode(found.octets("inclusion")),
    )


def _anchored(value: Any) -> Anchored:
    found = Shape.of(value, "package.anchors", ("kind", "ref"))
    return Anchored(found.name("kind"), found.octets("ref"))
