"""A zone in memory: a hub's keys, one stream of events in its log, and bundles cut from it."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from pathlib import Path

from bridge.bundle import BundleEvent, Header, Metadata, write_bundle
from bridge.carrier.bag import SIGNATURE, TAGMANIFEST, tag_files
from bridge.carrier.format import Carrier, CarrierSig
from bridge.trust import TrustStore
from veen import hub_identity, mmr, msg, receipt
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey, hpke_public_key
from veen.digest import Hasher, h
from veen.errors import Malformed
from veen.events import RECORD_SCHEMA, RecordEvent
from veen.label import DEFAULT_PROFILE, derive_label, routing_key, stream_id
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, open_msg, seal_payload
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint, StreamEnd, log_root
from veen.wire import cbor
from veen.wire.body import AnyItem

START = 1_700_000_000
LIMITS = Limits()
HUB = SigningKey(h(b"hub"))
CLIENT = SigningKey(h(b"client"))
EXPORTER = SigningKey(h(b"exporter"))
READER = h(b"reader")
IDENTITY = hub_identity.new_identity(HUB.public, START - 10, "none")
TRUST = TrustStore({IDENTITY.hub_id: IDENTITY}, {EXPORTER.public: "z1"})
STREAM = "export/z1/changes"
PROFILE_ID = h(b"recorder profile")


@dataclass
class Nodes:
    """Every node of a growing range."""

    leaves: list[bytes] = field(default_factory=list)
    stored: list[bytes] = field(default_factory=list)
    peaks: mmr.Peaks = mmr.EMPTY

    def add(self, leaf: bytes) -> bytes:
        self.peaks, completed = mmr.grow(self.peaks, leaf)
        self.leaves.append(leaf)
        self.stored += completed
        return self.peaks.root()

    def node(self, height: int, index: int) -> bytes:
        return self.stored[mmr.position(height, index)]


@dataclass
class World:
    """One stream of one hub."""

    stream: str = STREAM
    hub: SigningKey = HUB
    client: SigningKey = CLIENT
    body_bytes: int = 16
    nodes: Nodes = field(default_factory=Nodes)
    events: list[BundleEvent] = field(default_factory=list)

    @property
    def hub_id(self) -> bytes:
        return hub_identity.new_identity(self.hub.public, START - 10, "none").hub_id

    @property
    def label(self) -> bytes:
        return derive_label(routing_key(self.hub_id), stream_id(self.stream), 0)

    def grow(self, count: int, *, tell: bool = True, disclose: bool = True) -> World:
        for _ in range(count):
            self.events.append(self._event(tell, disclose))
        return self

    def _event(self, tell: bool, disclose: bool) -> BundleEvent:
        seq = len(self.events) + 1
        event = RecordEvent(
            subject_id=f"host/{seq % 7}",
            principal_id=self.client.public,
            event_type="config.changed",
            event_time=(START + seq) * 1000,
            origin="z1",
            payload=AnyItem(cbor.encode({"note": "x" * self.body_bytes})),
        )
        place = SealPlace(
            profile=DEFAULT_PROFILE,
            label=self.label,
            client_id=self.client.public,
            client_seq=seq,
            prev_ack=seq - 1,
            auth_ref=None,
        )
        sealed = seal_payload(
            recipient=hpke_public_key(READER),
            ephemeral=h(b"ephemeral" + cbor.dump(seq)),
            place=place,
            header=PayloadHdr(schema=RECORD_SCHEMA),
            body=event.encode(),
            limits=LIMITS,
        )
        issued = msg.issue(
            self.client,
            profile_id=DEFAULT_PROFILE.profile_id(),
            label=self.label,
            client_seq=seq,
            prev_ack=seq - 1,
            auth_ref=None,
            ciphertext=sealed.ciphertext,
        )
        raw = receipt.issue(
            self.hub,
            label=self.label,
            stream_seq=seq,
            leaf=issued.leaf,
            root=self.nodes.add(issued.leaf),
            hub_ts=START + seq,
        )
        opened = open_msg(
            private=READER, msg=Msg.decode(issued.raw), profile=DEFAULT_PROFILE, limits=LIMITS
        )
        return BundleEvent(
            payload=issued.raw,
            metadata=Metadata.of(event, Receipt.decode(raw)) if tell else None,
            receipt=raw,
            body_key=opened.body_key if disclose else None,
        )

    def checkpoint(self, size: int | None = None) -> RecorderCheckpoint:
        size = len(self.events) if size is None else size
        root = mmr.peaks_at(self.nodes, size).root()
        ends = (StreamEnd(stream_id=stream_id(self.stream), last_seq=size, mmr_root=root),)
        item = Checkpoint(
            label_prev=self.label, label_curr=self.label, upto_seq=size, mmr_root=root, epoch=0
        ).signed(self.hub)
        return RecorderCheckpoint(
            hub_id=self.hub_id,
            hub_public=self.hub.public,
            profile_id=PROFILE_ID,
            created_at=START + size,
            log_root=log_root(ends),
            ends=ends,
            names=(self.stream,),
            checkpoints=(item,),
        ).signed(self.hub)

    def header(self, first: int, last: int, size: int | None = None) -> Header:
        return Header(
            source_hub_id=self.hub_id,
            source_profile_id=PROFILE_ID,
            export_stream_id=stream_id(self.stream),
            export_stream=self.stream,
            export_seq_from=first,
            export_seq_to=last,
            export_time_from=START + first,
            export_time_to=START + last,
            export_checkpoint=self.checkpoint(size),
        )

    def proof(self, first: int, last: int, size: int | None = None) -> RangeProof:
        return RangeProof.build(self.nodes, first, last, size or len(self.events))

    def bundle(self, first: int, last: int, size: int | None = None) -> bytes:
        file = io.BytesIO()
        events = self.events[first - 1 : last]
        write_bundle(file, self.header(first, last, size), events, self.proof(first, last, size))
        return file.getvalue()

    def root(self, seq: int) -> bytes:
        return mmr.peaks_at(self.nodes, seq).root()


def reseal(header: Header, events: list[bytes], proof: bytes, count: int | None = None) -> bytes:
    """A bundle of any parts, with the bundle_id that a forger would compute."""
    head = cbor.dump(len(events) if count is None else count)
    inside = bytes([head[0] | 0x80]) + head[1:] + b"".join(events) + proof
    digest = Hasher.tagged("veen/agb0-bundle")
    digest.update(header.unnamed() + inside)
    return b"\x83" + replace(header, bundle_id=digest.digest()).encode() + inside


def parts(raw: bytes) -> tuple[Header, list[bytes], bytes]:
    """Header, events and proof of a small bundle."""
    end = cbor.skip(raw, 1)
    header = Header.decode(raw[1:end])
    count, at = cbor.array(raw, end)
    events = []
    for _ in range(count):
        stop = cbor.skip(raw, at)
        events.append(raw[at:stop])
        at = stop
    if cbor.skip(raw, at) != len(raw):
        raise Malformed("not a bundle")
    return header, events, raw[at:]


def unsigned(raw: bytes) -> bytes:
    """The same receipt with a signature that does not hold."""
    return raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:]


def carrier_of(bag: Path) -> Carrier:
    return Carrier.decode((bag / "carrier.cbor").read_bytes())


def resign(bag: Path, carrier: Carrier) -> None:
    """What an exporter who lies would sign."""
    files = tag_files(carrier, 1)
    for name, content in files.items():
        (bag / name).write_bytes(content)
    signature = CarrierSig.of(EXPORTER, files[TAGMANIFEST])
    (bag / SIGNATURE).write_bytes(signature.encode())


def bundle_id_of(raw: bytes) -> bytes:
    """The identifier in the header of a bundle."""
    bundle_id = parts(raw)[0].bundle_id
    assert bundle_id is not None
    return bundle_id
