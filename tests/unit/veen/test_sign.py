"""Signatures: no object's is another's, and nothing but the one valid form is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.broken import changed
from veen import receipt as receipts
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey, signature_is_valid
from veen.errors import Malformed
from veen.msg import Msg
from veen.receipt import Receipt

KEY = SigningKey(b"one key for all".ljust(32, b"."))
OTHER = SigningKey(b"another key".ljust(32, b"."))
DIGEST = bytes(range(32))
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
SMALL_ORDER = (
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "0100000000000000000000000000000000000000000000000000000000000080",
)


def a_checkpoint() -> Checkpoint:
    plain = Checkpoint(
        label_prev=b"l" * 32, label_curr=b"l" * 32, upto_seq=1, mmr_root=b"r" * 32, epoch=0
    )
    return plain.signed(KEY)


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_a_signature_holds_for_its_key_and_digest_alone(seed: bytes, digest: bytes) -> None:
    key = SigningKey(seed)
    signature = key.sign(digest)
    assert signature_is_valid(key.public, signature, digest)
    assert not signature_is_valid(OTHER.public, signature, digest)
    assert not signature_is_valid(key.public, signature, digest[:-1])


def test_no_signature_of_one_object_is_one_of_another(
    a_msg: Callable[..., Msg], a_receipt: Callable[..., Receipt]
) -> None:
    msg = a_msg(key=KEY)
    receipt, checkpoint = a_receipt(msg, key=KEY), a_checkpoint()
    for foreign in (receipt.hub_sig, checkpoint.hub_sig):
        assert not replace(msg, sig=foreign).signature_is_valid()
    for foreign in (msg.sig, checkpoint.hub_sig):
        assert not replace(receipt, hub_sig=foreign).is_signed_by(KEY.public)
    for foreign in (msg.sig, receipt.hub_sig):
        assert not replace(checkpoint, hub_sig=foreign).is_signed_by(KEY.public)
        assert not replace(checkpoint, witness_sigs=(foreign,)).is_witnessed_by(KEY.public)


@given(st.data())
def test_what_a_receipt_signs_is_never_what_a_checkpoint_signs(data: st.DataObject) -> None:
    hashes = [data.draw(st.sampled_from((b"a" * 32, b"b" * 32))) for _ in range(3)]
    numbers = [data.draw(st.integers(0, 2**64 - 1)) for _ in range(2)]
    receipt = Receipt(
        label=hashes[0], stream_seq=numbers[0], leaf_hash=hashes[1], mmr_root=hashes[2],
        hub_ts=numbers[1],
    ).signed(KEY)  # fmt: skip
    checkpoint = Checkpoint(
        label_prev=hashes[0], label_curr=hashes[1], upto_seq=numbers[0], mmr_root=hashes[2],
        epoch=numbers[1], hub_sig=receipt.hub_sig,
    )  # fmt: skip
    assert receipt.is_signed_by(KEY.public)
    assert not checkpoint.is_signed_by(KEY.public)


def test_an_issued_receipt_is_the_signed_object(
    a_msg: Callable[..., Msg], a_receipt: Callable[..., Receipt]
) -> None:
    for seq in (1, 23, 24, 255, 256, 65536, 2**32, 2**64 - 1):
        due = a_receipt(a_msg(), key=KEY, stream_seq=seq, hub_ts=seq)
        raw = receipts.issue(
            KEY, label=due.label, stream_seq=seq, leaf=due.leaf_hash, root=due.mmr_root, hub_ts=seq
        )
        assert raw == due.encode()


def test_refuses_a_change_of_any_signed_field(
    a_msg: Callable[..., Msg], a_receipt: Callable[..., Receipt]
) -> None:
    msg = a_msg()
    receipt = a_receipt(msg, key=KEY)
    for field in ("profile_id", "label", "auth_ref", "ct_hash", "ciphertext"):
        assert not changed(msg, **{field: b"x" * 32}).signature_is_valid()
    for field in ("client_seq", "prev_ack"):
        assert not changed(msg, **{field: 99}).signature_is_valid()
    for field in ("label", "leaf_hash", "mmr_root"):
        assert not changed(receipt, **{field: b"x" * 32}).is_signed_by(KEY.public)
    for field in ("stream_seq", "hub_ts"):
        assert not changed(receipt, **{field: 99}).is_signed_by(KEY.public)
    for field in ("label_prev", "label_curr", "mmr_root"):
        assert not changed(a_checkpoint(), **{field: b"x" * 32}).is_signed_by(KEY.public)
    for field in ("upto_seq", "epoch"):
        assert not changed(a_checkpoint(), **{field: 99}).is_signed_by(KEY.public)


def test_a_witness_signs_what_the_hub_signed_and_leaves_its_signature_valid() -> None:
    witnessed = a_checkpoint().witnessed(OTHER).witnessed(KEY)
    assert witnessed.is_signed_by(KEY.public)
    assert witnessed.is_witnessed_by(OTHER.public)
    assert len(witnessed.witness_sigs or ()) == 2


def test_refuses_every_flipped_bit(flips: Callable[[bytes], Iterable[bytes]]) -> None:
    signature = KEY.sign(DIGEST)
    assert not any(signature_is_valid(KEY.public, bad, DIGEST) for bad in flips(signature))
    assert not any(signature_is_valid(KEY.public, signature, bad) for bad in flips(DIGEST))
    assert not any(signature_is_valid(bad, signature, DIGEST) for bad in flips(KEY.public))


def test_refuses_a_signature_cut_short_or_extended() -> None:
    signature = KEY.sign(DIGEST)
    assert not any(signature_is_valid(KEY.public, signature[:end], DIGEST) for end in range(64))
    assert not any(
        signature_is_valid(KEY.public, signature + bytes(n), DIGEST) for n in (1, 32, 64)
    )
    assert not signature_is_valid(KEY.public, signature + DIGEST[:1], DIGEST[1:])


def test_refuses_a_key_of_another_size() -> None:
    signature = KEY.sign(DIGEST)
    for key in (b"", KEY.public[:-1], KEY.public + b"\x00", bytes(64)):
        assert not signature_is_valid(key, signature, DIGEST)


@pytest.mark.parametrize("times", range(1, 16))
def test_refuses_a_signature_whose_scalar_is_not_reduced(times: int) -> None:
    signature = KEY.sign(DIGEST)
    scalar = int.from_bytes(signature[32:], "little") + times * GROUP_ORDER
    if scalar < 2**256:
        malleated = signature[:32] + scalar.to_bytes(32, "little")
        assert not signature_is_valid(KEY.public, malleated, DIGEST)


@pytest.mark.parametrize("key", SMALL_ORDER)
def test_refuses_a_key_of_small_order(key: str) -> None:
    public = bytes.fromhex(key)
    for point in (bytes(32), b"\x01" + bytes(31), public, KEY.public):
        assert not signature_is_valid(public, point + bytes(32), DIGEST)


@pytest.mark.parametrize("point", SMALL_ORDER)
def test_refuses_a_nonce_point_of_small_order(point: str) -> None:
    assert not signature_is_valid(KEY.public, bytes.fromhex(point) + KEY.sign(DIGEST)[32:], DIGEST)


def test_the_all_zero_signature_of_an_unsigned_object_does_not_hold(
    a_msg: Callable[..., Msg],
) -> None:
    assert not replace(a_msg(), sig=bytes(64)).signature_is_valid()


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_refuses_a_seed_of_another_size(size: int) -> None:
    with pytest.raises(Malformed):
        SigningKey(bytes(size))


def test_a_private_key_does_not_show_its_secret() -> None:
    seed = b"do not show this".ljust(32, b"!")
    shown = repr(SigningKey(seed)) + str(SigningKey(seed))
    assert seed.hex() not in shown
    assert "do not show" not in shown
