"""Attachments: sealed one by one, committed to together by att_root (spec 4.6).

The nonce is bound to the message's aad in place of its msg_id, which would depend on att_root
and so on the nonce itself; each key is fresh for its message and index in any case.
"""

from __future__ import annotations

from collections.abc import Sequence

from veen import aead, hpke, mmr
from veen.digest import h, ht, trunc24, u64be
from veen.errors import Untrusted, WrongSize
from veen.limits import Limits


class Keys:
    """Key and nonce of each attachment of one message."""

    def __init__(self, context: hpke.Exporter, aad: bytes) -> None:
        self._context = context
        self._aad = aad

    def seal(self, index: int, plaintext: bytes) -> bytes:
        return aead.encrypt(self._key(index), self._nonce(index), b"", plaintext)

    def open(self, index: int, ciphertext: bytes) -> bytes:
        return aead.decrypt(self._key(index), self._nonce(index), b"", ciphertext)

    def _key(self, index: int) -> bytes:
        return self._context.export(b"veen/att-k" + u64be(index), aead.KEY_BYTES)

    def _nonce(self, index: int) -> bytes:
        return trunc24(ht("veen/att-nonce", self._aad, u64be(index)))


def coid(ciphertext: bytes) -> bytes:
    """The content identifier of one sealed attachment."""
    return h(ciphertext)


def root(sealed: Sequence[bytes]) -> bytes:
    """att_root over sealed attachments in order; hashed also for one peak or none."""
    peaks = mmr.peaks_of((coid(one) for one in sealed), _node)
    return ht("veen/att-root", *peaks)


def verify_root(att_root: bytes | None, sealed: Sequence[bytes], limits: Limits) -> None:
    """Refuse attachments that are not those the header commits to."""
    _check_sizes(sealed, limits, limits.max_attachment_bytes + aead.TAG_BYTES)
    if att_root is None and not sealed:
        return
    if att_root != root(sealed):
        raise Untrusted(f"att_root is not the root of these {len(sealed)} attachments")


def check_sizes(attachments: Sequence[bytes], limits: Limits) -> None:
    """Count and sizes, before any of them is sealed (spec 14.2)."""
    _check_sizes(attachments, limits, limits.max_attachment_bytes)


def _check_sizes(attachments: Sequence[bytes], limits: Limits, most: int) -> None:
    if len(attachments) > limits.max_attachments_per_msg:
        raise WrongSize(
            f"{len(attachments)} attachments, {limits.max_attachments_per_msg} are allowed"
        )
    for index, one in enumerate(attachments):
        if len(one) > most:
            raise WrongSize(f"attachment {index} has {len(one)} bytes")


def _node(left: bytes, right: bytes) -> bytes:
    return ht("veen/att-node", left, right)
