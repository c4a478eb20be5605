"""Protocol code with one thing broken in the program itself: by its name, and how."""
# ruff: noqa: PLC0415, ARG005 - a process loads only what is broken in it

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.selftest.mutants.breaking import nothing, swap


def plaintext_sent() -> None:
    from veen import payload

    swap(payload, "aead_encrypt", lambda key, nonce, aad, plaintext: plaintext + bytes(16))
    swap(payload, "aead_decrypt", lambda key, nonce, aad, ciphertext: ciphertext[:-16])


def attachments_unchecked() -> None:
    from veen import payload
    from veen.client import sealer

    swap(payload, "verify_attachment_root", nothing)
    swap(sealer, "verify_attachment_root", nothing)


def own_keys_for_all() -> None:
    """Whatever reader was named, the sender can open it."""
    from veen.client.client import Client

    messages: Any = Client._messages
    swap(
        Client,
        "_messages",
        lambda self, stream, bodies, options: messages(
            self, stream, bodies, {**options, "recipient": None}
        ),
    )


def state_unchecked() -> None:
    from veen.client import resync

    swap(resync, "_verify_view", nothing)


def one_nonce() -> None:
    from veen.payload import SealPlace

    swap(SealPlace, "nonce", lambda self: bytes(24))


def wrong_graft() -> None:
    from veen import mmr

    def swapped(self: Any, height: int, subtree: bytes) -> Any:
        merged = mmr.trailing_ones(self.size >> height)
        for peak in self.hashes[:merged]:
            subtree = mmr.node(subtree, peak) if height else mmr.node(peak, subtree)
        return mmr.Peaks(self.size + (1 << height), (subtree, *self.hashes[merged:]))

    swap(mmr.Peaks, "graft", swapped)


def shape_unchecked() -> None:
    from veen.proofs import MmrProof

    swap(MmrProof, "_verify_shape", nothing)


def inclusion_unchecked() -> None:
    from veen.proofs import InclusionProof

    swap(InclusionProof, "verify", nothing)


def range_unchecked() -> None:
    from veen.proofs import RangeProof

    swap(RangeProof, "verify_after", nothing)


def consistency_unchecked() -> None:
    from veen import proofs

    swap(proofs, "verify_consistency", nothing)


def end_unchecked() -> None:
    """Whatever follows an item is not looked at."""
    from veen.wire import cbor

    swap(cbor, "finish", nothing)


def overlong_taken() -> None:
    from veen.wire import cbor

    swap(cbor, "_SMALLEST", dict.fromkeys(cbor._SMALLEST, 0))


def careless_reader() -> None:
    """Bytes that are missing are an IndexError, as in any first draft."""
    from veen.wire import cbor

    head = cbor.head

    def careless(raw: bytes, at: int) -> Any:
        raw[at]
        return head(raw, at)

    swap(cbor, "head", careless)


def text_stripped() -> None:
    from veen.wire.schema import Text

    read = Text.read

    def stripping(raw: bytes, at: int) -> Any:
        text, end = read(raw, at)
        return text.strip(), end

    swap(Text, "read", staticmethod(stripping))


MUTANTS: dict[str, Callable[[], None]] = {
    "plaintext sent": plaintext_sent,
    "attachments unchecked": attachments_unchecked,
    "own keys for all": own_keys_for_all,
    "state unchecked": state_unchecked,
    "one nonce": one_nonce,
    "wrong graft": wrong_graft,
    "shape unchecked": shape_unchecked,
    "inclusion unchecked": inclusion_unchecked,
    "range unchecked": range_unchecked,
    "consistency unchecked": consistency_unchecked,
    "end unchecked": end_unchecked,
    "overlong taken": overlong_taken,
    "careless reader": careless_reader,
    "text stripped": text_stripped,
}
