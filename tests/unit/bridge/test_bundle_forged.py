"""Bundles of a forger who computes the right bundle_id: each lie has its own code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

from bridge.bundle import BundleEvent, BundleLimits, Metadata
from bridge.errors import CarrierFault, CarrierRefused
from bridge.trust import TrustStore
from bridge.verify import Continuity, HeldStream, is_encoding_of, verify_bundle
from support.bridge import bridge_world
from support.bridge.held_roots import HeldRoots
from veen import receipt
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Malformed
from veen.events import RecordEvent
from veen.label import DEFAULT_PROFILE
from veen.msg import Msg
from veen.payload import open_body
from veen.proofs import RangeProof
from veen.receipt import Receipt
from veen.wire.cbor import dump

Verdict = Callable[[bytes], str]
OTHER = SigningKey(h(b"someone else"))


class Forge:
    """A bundle of events 3 to 6 of nine, open to changes."""

    def __init__(self, grown: Any) -> None:
        self.world, self.grown = bridge_world, grown
        self.header, self.events, raw = bridge_world.parts(grown.bundle(3, 6))
        self.proof = RangeProof.decode(raw)

    def event(self, at: int, **changes: Any) -> Forge:
        changed = replace(BundleEvent.decode(self.events[at]), **changes)
        self.events[at] = changed.encode()
        return self

    def detail(self, at: int, **changes: Any) -> Forge:
        metadata = BundleEvent.decode(self.events[at]).metadata
        assert metadata is not None
        return self.event(at, metadata=replace(metadata, **changes))

    def seal(self, **changes: Any) -> bytes:
        header = replace(self.header, **changes)
        raw: bytes = self.world.reseal(header, self.events, self.proof.encode())
        return raw


@pytest.fixture
def forge(grown_world: Any) -> Forge:
    return Forge(grown_world)


def test_what_is_not_forged_is_valid(forge: Forge, bundle_verdict: Verdict) -> None:
    assert bundle_verdict(forge.seal()) == "valid"


def test_refuses_any_change_under_the_old_bundle_id(
    grown_world: Any, bundle_verdict: Verdict
) -> None:
    raw = grown_world.bundle(3, 6)
    assert bundle_verdict(raw.replace(b"host/4", b"host/5", 1)) == "E.SIG/BUNDLE_ID"


def test_refuses_a_dropped_event(forge: Forge, bundle_verdict: Verdict) -> None:
    del forge.events[1]
    assert bundle_verdict(forge.seal()) == "E.SEQ/COUNT"


def test_refuses_a_dropped_tail_with_a_shorter_header(
    forge: Forge, bundle_verdict: Verdict
) -> None:
    del forge.events[-1]
    shorter = {"export_seq_to": 5, "export_time_to": forge.header.export_time_to - 1}
    assert bundle_verdict(forge.seal(**shorter)) == "E.SEQ/RANGE"


def test_refuses_two_events_in_each_others_place(forge: Forge, bundle_verdict: Verdict) -> None:
    forge.events[1], forge.events[2] = forge.events[2], forge.events[1]
    assert bundle_verdict(forge.seal()) == "E.SEQ/PLACE"


def test_refuses_an_event_of_another_stream(forge: Forge, bundle_verdict: Verdict) -> None:
    other = forge.world.World(stream="export/z1/other").grow(4)
    forge.events[1] = other.events[3].encode()
    assert bundle_verdict(forge.seal()) == "E.SEQ/PLACE"


def test_refuses_a_receipt_for_another_message(forge: Forge, bundle_verdict: Verdict) -> None:
    forge.event(1, payload=BundleEvent.decode(forge.events[2]).payload)
    assert bundle_verdict(forge.seal()) == "E.SIG/LEAF"


def test_refuses_a_message_with_another_body(forge: Forge, bundle_verdict: Verdict) -> None:
    msg = Msg.decode(BundleEvent.decode(forge.events[1]).payload)
    forge.event(1, payload=replace(msg, ciphertext=msg.ciphertext + b"\x00").encode())
    assert bundle_verdict(forge.seal()) == "E.SIG/LEAF"


def test_refuses_a_receipt_with_another_root(forge: Forge, bundle_verdict: Verdict) -> None:
    receipt = Receipt.decode(BundleEvent.decode(forge.events[2]).receipt)
    forged = replace(receipt, mmr_root=h(b"root")).signed(forge.world.HUB)
    forge.event(2, receipt=forged.encode())
    assert bundle_verdict(forge.seal()) == "E.SEQ/ROOT"


def test_refuses_forged_peaks_before(forge: Forge, bundle_verdict: Verdict) -> None:
    forge.proof = replace(forge.proof, peaks_before=(h(b"peak"),))
    assert bundle_verdict(forge.seal()) == "E.SEQ/ROOT"


def test_refuses_a_wrong_number_of_peaks(forge: Forge, bundle_verdict: Verdict) -> None:
    forge.proof = replace(forge.proof, peaks_before=(h(b"peak"), h(b"another")))
    assert bundle_verdict(forge.seal()) == "E.SEQ/PROOF"


@pytest.mark.parametrize("change", ["forged", "fewer", "more"])
def test_refuses_forged_subtrees_after(forge: Forge, bundle_verdict: Verdict, change: str) -> None:
    after = forge.proof.subtrees_after
    forged = {"forged": (*after[:-1], h(b"x")), "fewer": after[:-1], "more": (*after, h(b"x"))}
    forge.proof = replace(forge.proof, subtrees_after=forged[change])
    assert bundle_verdict(forge.seal()) == "E.SEQ/PROOF"


def test_refuses_a_proof_of_another_size(forge: Forge, bundle_verdict: Verdict) -> None:
    forge.proof = forge.grown.proof(3, 6, 8)
    assert bundle_verdict(forge.seal()) == "E.SEQ/RANGE"


def test_refuses_a_checkpoint_that_ends_before_the_events(
    forge: Forge, bundle_verdict: Verdict
) -> None:
    assert bundle_verdict(forge.seal(export_checkpoint=forge.grown.checkpoint(5))) == "E.SEQ/RANGE"


def test_refuses_a_checkpoint_without_the_stream(forge: Forge, bundle_verdict: Verdict) -> None:
    other = forge.world.World(stream="export/z1/other").grow(9)
    assert bundle_verdict(forge.seal(export_checkpoint=other.checkpoint())) == "E.SEQ/RANGE"


def test_refuses_times_that_are_not_those_of_the_events(
    forge: Forge, bundle_verdict: Verdict
) -> None:
    assert bundle_verdict(forge.seal(export_time_from=1)) == "E.SEQ/RANGE"


def test_refuses_a_message_signed_by_someone_else(bundle_verdict: Verdict) -> None:
    world = bridge_world.World().grow(1)
    event = world.events[0]
    msg = replace(Msg.decode(event.payload), sig=OTHER.sign(h(b"x")))
    header, _, proof = bridge_world.parts(world.bundle(1, 1))
    raw = bridge_world.reseal(header, [replace(event, payload=msg.encode()).encode()], proof)
    assert bundle_verdict(raw) == "E.SIG/MSG_SIG"


def test_refuses_a_receipt_signed_by_someone_else(forge: Forge, bundle_verdict: Verdict) -> None:
    result = Receipt.decode(BundleEvent.decode(forge.events[1]).receipt)
    forged = receipt.issue(
        OTHER,
        label=result.label,
        stream_seq=result.stream_seq,
        leaf=result.leaf_hash,
        root=result.mmr_root,
        hub_ts=result.hub_ts,
    )
    assert bundle_verdict(forge.event(1, receipt=forged).seal()) == "E.SIG/RECEIPT_SIG"


@pytest.mark.parametrize(
    "changes",
    [
        {"subject_id": "host/x"},
        {"principal_id": h(b"nobody")},
        {"event_type": "config.read"},
        {"event_time": 1},
        {"hub_commit_time": 1},
        {"origin": "z2"},
    ],
    ids=lambda item: next(iter(item)),
)
def test_refuses_metadata_that_the_body_does_not_say(
    forge: Forge, bundle_verdict: Verdict, changes: dict[str, Any]
) -> None:
    assert bundle_verdict(forge.detail(2, **changes).seal()) == "E.SIG/METADATA"


def test_refuses_a_key_that_does_not_open_the_body(forge: Forge, bundle_verdict: Verdict) -> None:
    assert bundle_verdict(forge.event(2, body_key=h(b"key")).seal()) == "E.SIG/METADATA"


def test_a_bad_signature_ranks_before_wrong_metadata(forge: Forge, bundle_verdict: Verdict) -> None:
    forge.detail(0, origin="z2")
    receipt = BundleEvent.decode(forge.events[3]).receipt
    assert (
        bundle_verdict(forge.event(3, receipt=bridge_world.unsigned(receipt)).seal())
        == "E.SIG/RECEIPT_SIG"
    )


def test_a_false_range_ranks_before_a_bad_signature(forge: Forge, bundle_verdict: Verdict) -> None:
    receipt = BundleEvent.decode(forge.events[0]).receipt
    forge.event(0, receipt=bridge_world.unsigned(receipt))
    forge.proof = replace(forge.proof, subtrees_after=(h(b"x"), h(b"y")))
    assert bundle_verdict(forge.seal()) == "E.SEQ/PROOF"


def test_metadata_of_a_closed_body_is_counted_as_not_checked() -> None:
    world = bridge_world.World().grow(2).grow(1, disclose=False)
    result = verify_bundle(BytesIO(world.bundle(1, 3)), bridge_world.TRUST, None)
    assert (result.with_metadata, result.unopened) == (3, 1)


def a_bundle(event: BundleEvent) -> bytes:
    """A bundle of the first event of a stream with other metadata or another body key."""
    header, _, proof = bridge_world.parts(bridge_world.World().grow(1).bundle(1, 1))
    return bridge_world.reseal(header, [event.encode()], proof)


@pytest.mark.parametrize("changes", [{"principal_id": h(b"nobody")}, {"hub_commit_time": 1}])
def test_refuses_metadata_of_a_closed_body_that_is_not_of_its_message_and_receipt(
    bundle_verdict: Verdict, changes: dict[str, Any]
) -> None:
    (event,) = bridge_world.World().grow(1, disclose=False).events
    assert event.metadata is not None
    assert bundle_verdict(a_bundle(event)) == "valid"
    forged = replace(event, metadata=replace(event.metadata, **changes))
    assert bundle_verdict(a_bundle(forged)) == "E.SIG/METADATA"


def test_a_body_without_metadata_is_opened_all_the_same(bundle_verdict: Verdict) -> None:
    (event,) = bridge_world.World().grow(1, tell=False).events
    assert bundle_verdict(a_bundle(event)) == "valid"
    assert bundle_verdict(a_bundle(replace(event, body_key=h(b"key")))) == "E.SIG/METADATA"


def test_an_event_without_metadata_and_body_is_valid(bundle_verdict: Verdict) -> None:
    (event,) = bridge_world.World().grow(1, tell=False, disclose=False).events
    assert bundle_verdict(a_bundle(event)) == "valid"


def as_decoded(metadata: Metadata, body: bytes) -> bool:
    """Whether decoding the body as an event gives the fields of the metadata."""
    try:
        event = RecordEvent.decode(body)
    except Malformed:
        return False
    return all(getattr(event, field) == getattr(metadata, field) for field in EVENT_FIELDS)


EVENT_FIELDS = ("subject_id", "principal_id", "event_type", "event_time", "origin")


def test_metadata_fits_a_body_just_if_decoding_it_says_so(grown_world: Any) -> None:
    """Any byte of the body changed, doubled or dropped, and bodies of other payloads."""
    event = grown_world.events[0]
    body = open_body(
        body_key=event.body_key, msg=Msg.decode(event.payload), profile=DEFAULT_PROFILE
    )
    assert is_encoding_of(event.metadata, body)
    changed = [
        body[:at] + new + body[at + 1 :]
        for at in range(len(body))
        for new in (bytes([body[at] ^ 1]), bytes([body[at] ^ 0x20]), body[at : at + 1] * 2, b"")
    ]
    for other in (*changed, body[1:], body + b"\x00", b""):
        try:
            fits = is_encoding_of(event.metadata, other)
        except Malformed:
            fits = False
        assert fits == as_decoded(event.metadata, other)


def test_refuses_an_unknown_hub(bundle_verdict: Verdict) -> None:
    assert bundle_verdict(bridge_world.World(hub=OTHER).grow(2).bundle(1, 2)) == "E.AUTH/HUB"


@pytest.mark.parametrize(
    ("revoked", "reason"),
    [({}, "is not in the trust store"), ({bridge_world.IDENTITY.hub_id: "lost"}, "revoked: lost")],
    ids=["unknown", "revoked"],
)
def test_says_whether_a_hub_is_unknown_or_revoked(
    grown_world: Any, revoked: dict[bytes, str], reason: str
) -> None:
    with pytest.raises(CarrierRefused, match=reason) as refusal:
        verify_bundle(BytesIO(grown_world.bundle(1, 2)), TrustStore(revoked=revoked), None)
    assert refusal.value.fault is CarrierFault.HUB


def test_refuses_the_checkpoint_of_another_hub(forge: Forge, bundle_verdict: Verdict) -> None:
    other = forge.world.World(hub=OTHER).grow(9)
    assert bundle_verdict(forge.seal(export_checkpoint=other.checkpoint())) == "E.AUTH/HUB"


def test_refuses_a_hub_key_that_is_not_pinned(forge: Forge, bundle_verdict: Verdict) -> None:
    forged = replace(forge.grown.checkpoint(), hub_public=OTHER.public).signed(OTHER)
    assert bundle_verdict(forge.seal(export_checkpoint=forged)) == "E.AUTH/HUB_KEY"


def test_refuses_a_checkpoint_that_its_hub_did_not_sign(
    forge: Forge, bundle_verdict: Verdict
) -> None:
    forged = forge.grown.checkpoint().signed(OTHER)
    assert bundle_verdict(forge.seal(export_checkpoint=forged)) == "E.SIG/CHECKPOINT"


def test_refuses_a_stream_checkpoint_that_the_hub_did_not_sign(
    forge: Forge, bundle_verdict: Verdict
) -> None:
    checkpoint = forge.grown.checkpoint()
    inner = replace(checkpoint.checkpoints[0], hub_sig=OTHER.sign(h(b"x")))
    forged = replace(checkpoint, checkpoints=(inner,)).signed(forge.world.HUB)
    assert bundle_verdict(forge.seal(export_checkpoint=forged)) == "E.SIG/CHECKPOINT"


def test_an_event_that_is_not_strict_is_refused_though_its_hash_is_right(
    forge: Forge, bundle_verdict: Verdict
) -> None:
    event = forge.events[1]
    assert event[1] == 0x59
    forge.events[1] = event[:1] + b"\x5a\x00\x00" + event[2:]
    assert bundle_verdict(forge.seal()) == "E.FORMAT/EVENT_FORMAT"


def test_refuses_more_events_than_are_allowed(grown_world: Any) -> None:
    with pytest.raises(CarrierRefused) as refusal:
        verify_bundle(
            BytesIO(grown_world.bundle(1, 9)), bridge_world.TRUST, None, BundleLimits(max_events=8)
        )
    assert refusal.value.fault is CarrierFault.BUNDLE_SIZE


def swap(forge: Forge) -> None:
    forge.events[1], forge.events[2] = forge.events[2], forge.events[1]


def swap_first(forge: Forge) -> None:
    forge.events[0], forge.events[1] = forge.events[1], forge.events[0]


def of_another_stream(forge: Forge) -> None:
    forge.events[1] = bridge_world.World(stream="export/z1/other").grow(4).events[3].encode()


def receipt_of_another_stream(forge: Forge) -> None:
    """The message of this stream with a receipt that the hub gave it in another one."""
    given = Receipt.decode(BundleEvent.decode(forge.events[1]).receipt)
    forge.event(1, receipt=replace(given, label=h(b"label")).signed(bridge_world.HUB).encode())


def unsigned_message(forge: Forge) -> None:
    msg = Msg.decode(BundleEvent.decode(forge.events[1]).payload)
    forge.event(1, payload=replace(msg, sig=OTHER.sign(h(b"x"))).encode())


def another_root(forge: Forge) -> None:
    given = Receipt.decode(BundleEvent.decode(forge.events[1]).receipt)
    forge.event(1, receipt=replace(given, mmr_root=h(b"root")).signed(bridge_world.HUB).encode())


def peaks_before(forge: Forge) -> None:
    forge.proof = replace(forge.proof, peaks_before=())


def subtrees_after(forge: Forge) -> None:
    forge.proof = replace(forge.proof, subtrees_after=())


LIES: dict[str, tuple[Callable[[Forge], Any], CarrierFault, int]] = {
    "place": (swap, CarrierFault.PLACE, 4),
    "first place": (swap_first, CarrierFault.PLACE, 3),
    "stream": (of_another_stream, CarrierFault.PLACE, 4),
    "label": (receipt_of_another_stream, CarrierFault.PLACE, 4),
    "format": (lambda forge: forge.event(1, payload=b""), CarrierFault.EVENT_FORMAT, 4),
    "message": (
        lambda forge: forge.event(1, payload=BundleEvent.decode(forge.events[2]).payload),
        CarrierFault.LEAF, 4,
    ),
    "receipt signature": (
        lambda forge: forge.event(
            1, receipt=bridge_world.unsigned(BundleEvent.decode(forge.events[1]).receipt)
        ),
        CarrierFault.RECEIPT_SIG, 4,
    ),
    "message signature": (unsigned_message, CarrierFault.MSG_SIG, 4),
    "root": (another_root, CarrierFault.ROOT, 4),
    "before": (peaks_before, CarrierFault.PROOF, 3),
    "after": (subtrees_after, CarrierFault.PROOF, 6),
    "principal": (lambda forge: forge.detail(1, principal_id=h(b"x")), CarrierFault.METADATA, 4),
    "hub time": (lambda forge: forge.detail(1, hub_commit_time=1), CarrierFault.METADATA, 4),
    "origin": (lambda forge: forge.detail(1, origin="z2"), CarrierFault.METADATA, 4),
    "body key": (lambda forge: forge.event(1, body_key=h(b"key")), CarrierFault.METADATA, 4),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_names_the_first_bad_event(forge: Forge, lie: str) -> None:
    tell, fault, seq = LIES[lie]
    tell(forge)
    with pytest.raises(CarrierRefused) as refusal:
        verify_bundle(BytesIO(forge.seal()), forge.world.TRUST, None)
    assert (refusal.value.fault, refusal.value.seq) == (fault, seq)


@pytest.mark.parametrize(
    ("held", "due"),
    [
        ({}, Continuity.GAP),
        ({1: 1}, Continuity.GAP),
        ({2: 2}, Continuity.FOLLOWS),
        ({2: 2, 5: 5}, Continuity.OVERLAPS),
        ({5: 5}, Continuity.UNTESTED),
    ],
    ids=str,
)
def test_tells_how_a_bundle_joins_on(
    grown_world: Any, held: dict[int, int], due: Continuity
) -> None:
    roots = HeldRoots({seq: grown_world.root(seq) for seq in held})
    result = verify_bundle(BytesIO(grown_world.bundle(3, 6)), bridge_world.TRUST, roots)
    assert result.continuity is due
    assert result.root == grown_world.root(6)


def test_refuses_another_past_than_the_one_held(grown_world: Any) -> None:
    with pytest.raises(CarrierRefused) as refusal:
        verify_bundle(
            BytesIO(grown_world.bundle(3, 6)), bridge_world.TRUST, HeldRoots({2: h(b"fork")})
        )
    assert (refusal.value.fault, refusal.value.seq) == (CarrierFault.FORK, 3)


class WithoutRoots:
    """A HeldStream that knows its last event and no root up to it."""

    def __init__(self, last: int) -> None:
        self._last = last

    def last_seq(self) -> int:
        return self._last

    def root_at(self, seq: int) -> bytes | None:
        return h(b"root") if seq > self._last + 1 else None


@pytest.mark.parametrize(
    ("first", "held", "due"),
    [
        (1, None, Continuity.FIRST),
        (1, HeldRoots(), Continuity.FIRST),
        (2, None, Continuity.UNTESTED),
        (2, HeldRoots(), Continuity.GAP),
        (3, WithoutRoots(1), Continuity.GAP),
        (3, WithoutRoots(2), Continuity.UNTESTED),
    ],
)
def test_never_says_that_a_bundle_follows_without_a_root_to_compare(
    grown_world: Any, first: int, held: HeldStream | None, due: Continuity
) -> None:
    result = verify_bundle(BytesIO(grown_world.bundle(first, 6)), bridge_world.TRUST, held)
    assert result.continuity is due


def test_an_unknown_hub_is_refused_before_any_event_is_read(forge: Forge) -> None:
    forge.events = [dump([b"", None, b""])] * 4
    with pytest.raises(CarrierRefused) as refusal:
        verify_bundle(BytesIO(forge.seal()), TrustStore(), None)
    assert refusal.value.fault is CarrierFault.HUB
