"""Hub identity: the keys of a hub, and the chain from its hub_id to each of them (spec 8.4).

hub_id is a hash of the first key. Every later key is endorsed by the key before it, and the current
key signs the whole document, so a client that pins hub_id can verify the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey, signature_is_valid
from veen.digest import h, ht, u64be
from veen.errors import LATER_RELEASE, Malformed, Untrusted, WrongVersion
from veen.label import Profile, hub_id
from veen.receipt import Receipt
from veen.timestamp import readable_time
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Bytes64, Version

_JOURNAL_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HubKey(WireMap):
    """One key and the time in which the hub may sign with it, both ends included."""

    key_id: Bytes32
    hub_pk: Bytes32
    valid_from: int
    valid_until: int | None = None
    endorsement: Bytes64 | None = None

    def rule(self) -> None:
        if self.key_id != key_id(self.hub_pk):
            raise Malformed("key_id is not the fingerprint of hub_pk")
        if self.valid_until is not None and self.valid_until < self.valid_from:
            raise Malformed("hub key: expected valid_until after valid_from, got an earlier time")

    def is_retired(self, hub_ts: int) -> bool:
        return self.valid_until is not None and self.valid_until < hub_ts

    def overlaps(self, start: int, end: int | None) -> bool:
        begins_in_time = end is None or self.valid_from <= end
        return begins_in_time and (self.valid_until is None or self.valid_until >= start)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubIdentity(WireMap):
    ver: Version = 1
    hub_id: Bytes32
    hub_keys: tuple[HubKey, ...]
    anchoring: str

    def rule(self) -> None:
        if not self.hub_keys:
            raise Malformed("hub identity: expected at least one key, got none")
        if len({key.key_id for key in self.hub_keys}) != len(self.hub_keys):
            raise Malformed("hub identity: duplicate key")
        if list(self.hub_keys) != sorted(self.hub_keys, key=lambda key: key.valid_from):
            raise Malformed("hub identity: keys out of order")
        if self.hub_id != hub_id(self.hub_keys[0].hub_pk):
            raise Malformed("hub_id is not the hash of the first hub key")

    @property
    def current(self) -> HubKey:
        return self.hub_keys[-1]

    @property
    def number(self) -> int:
        """The number of keys; of two identities of a hub the later has more."""
        return len(self.hub_keys)

    def described(self) -> str:
        """Which identity it is, in words."""
        return (
            f"identity {self.number} of hub {self.hub_id.hex()}, whose current key is valid since "
            f"hub_ts {readable_time(self.current.valid_from)}"
        )

    def signature_by(self, current: SigningKey) -> bytes:
        return current.sign(ht("veen/hub-identity", self.encode()))

    def verify(self, signature: bytes) -> None:
        """Raise Untrusted unless an unbroken chain leads from hub_id to this document."""
        for index, (old, new) in enumerate(pairwise(self.hub_keys), 1):
            digest = _endorsement_digest(self.hub_id, index, new)
            if not signature_is_valid(old.hub_pk, new.endorsement or b"", digest):
                raise Untrusted(f"hub key {new.key_id.hex()} is not endorsed by the key before it")
        digest = ht("veen/hub-identity", self.encode())
        if not signature_is_valid(self.current.hub_pk, signature, digest):
            raise Untrusted("the hub identity is not signed by its current key")

    def rotated(self, old: SigningKey, new_pk: bytes, at: int, overlap_sec: int) -> HubIdentity:
        """The identity with a new key from ``at`` on; the old key ends after the overlap."""
        if old.public != self.current.hub_pk:
            raise Untrusted("only the current key may endorse the next one")
        plain = HubKey(key_id=key_id(new_pk), hub_pk=new_pk, valid_from=at)
        digest = _endorsement_digest(self.hub_id, len(self.hub_keys), plain)
        retired = replace(self.current, valid_until=at + overlap_sec)
        endorsed = replace(plain, endorsement=old.sign(digest))
        return replace(self, hub_keys=(*self.hub_keys[:-1], retired, endorsed))

    def verify_receipt(self, receipt: Receipt) -> HubKey:
        """The key that signed a receipt; it must have been valid at hub_ts."""
        at = receipt.hub_ts
        for key in reversed(self.hub_keys):
            if key.overlaps(at, at) and receipt.is_signed_by(key.hub_pk):
                return key
        raise Untrusted(f"receipt {receipt.stream_seq} is not signed by a key valid at its hub_ts")

    def verify_checkpoint(
        self,
        checkpoint: Checkpoint,
        profile: Profile,
        *,
        not_before: int,
        not_after: int | None = None,
    ) -> HubKey:
        """The key that signed a checkpoint: of its epoch, not retired before ``not_before``.

        A CHECKPOINT carries no time. It is never older than the last entry it covers, so
        ``not_before`` is hub_ts of the receipt at upto_seq. ``not_after`` is a hub time at which
        it is known to have existed; None where nothing says so.
        """
        start, end = epoch_span(checkpoint.epoch, profile)
        # Entries of an epoch may come in after its end, by the skew that a hub allows.
        last = None if end is None else max(end, not_before)
        if not_after is not None:
            last = not_after if last is None else min(last, not_after)
        for key in reversed(self.hub_keys):
            is_valid = key.overlaps(max(start, not_before), last)
            if is_valid and checkpoint.is_signed_by(key.hub_pk):
                self._verify_witnesses(checkpoint, key, not_before, not_after)
                return key
        raise Untrusted(
            f"checkpoint {checkpoint.upto_seq} is not signed by a key of its epoch "
            f"that was still valid at hub_ts {not_before}"
        )

    def _verify_witnesses(
        self, checkpoint: Checkpoint, signer: HubKey, not_before: int, not_after: int | None
    ) -> None:
        """Raise Untrusted for a checkpoint of a key overlap without both witnesses (KEX0.1).

        It was made in the overlap if it cannot have been made before or after.
        """
        begin = max(not_before, signer.valid_from)
        ends = [end for end in (not_after, signer.valid_until) if end is not None]
        for old, new in pairwise(self.hub_keys):
            # The old key may have signed in the same second in which the new key began.
            since = new.valid_from if signer.valid_from >= new.valid_from else new.valid_from + 1
            if old.valid_until is None or not ends or min(ends) > old.valid_until or begin < since:
                continue
            for key in (old, new):
                if not checkpoint.is_witnessed_by(key.hub_pk):
                    raise Untrusted(
                        f"checkpoint {checkpoint.upto_seq} was made while two hub keys overlapped "
                        f"(hub_ts {new.valid_from} to {old.valid_until}): expected witness_sigs of "
                        f"both, got none of key {key.key_id.hex()}"
                    )


def new_identity(first_pk: bytes, valid_from: int, anchoring: str) -> HubIdentity:
    first = HubKey(key_id=key_id(first_pk), hub_pk=first_pk, valid_from=valid_from)
    return HubIdentity(hub_id=hub_id(first_pk), hub_keys=(first,), anchoring=anchoring)


def epoch_span(epoch: int, profile: Profile) -> tuple[int, int | None]:
    """First and last second of an epoch; without epochs it is all of time."""
    start = epoch * profile.epoch_sec
    return start, start + profile.epoch_sec - 1 if profile.epoch_sec else None


def key_id(hub_pk: bytes) -> bytes:
    """The fingerprint by which artefacts name a hub key."""
    return h(hub_pk)


def _endorsement_digest(hub: bytes, index: int, key: HubKey) -> bytes:
    return ht("veen/hub-key", hub, u64be(index), key.hub_pk, u64be(key.valid_from))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBinding(WireMap):
    """One line of the manifest that ties checkpoint files to the hub and the key (spec 8.4)."""

    ver: Version = 1
    hub_id: Bytes32
    key_id: Bytes32
    label: Bytes32
    epoch: int
    upto_seq: int
    mmr_root: Bytes32


def binding_line_head(hub_id: bytes) -> bytes:
    """The first bytes of every line of a binding manifest."""
    return b"\xa7\x01\x01\x02\x58\x20" + hub_id


def binding_at(raw: bytes, at: int) -> tuple[int, CheckpointBinding | None]:
    """A line of a binding manifest, and where it ends; None for a line that is malformed."""
    try:
        end = cbor.skip(raw, at)
        return end, CheckpointBinding.decode(raw[at:end])
    except Malformed:
        return len(raw), None


def whole_bindings(raw: bytes) -> Iterator[CheckpointBinding]:
    """The lines of a binding manifest up to the first that is malformed."""
    at = 0
    while at < len(raw):
        at, line = binding_at(raw, at)
        if line is None:
            return
        yield line


def encode_journal(documents: Sequence[bytes]) -> bytes:
    """The journal of a change of identity: identity, signature and key map after a version."""
    return cbor.encode([_JOURNAL_VERSION, *documents])


def journalled_documents(raw: bytes) -> list[bytes]:
    """The documents of a journal; one of an earlier release has no version before them."""
    documents = cbor.decode(raw)
    if type(documents) is list and documents and type(documents[0]) is int:
        version, *documents = documents
        if version != _JOURNAL_VERSION:
            raise WrongVersion(
                f"expected version {_JOURNAL_VERSION}, got {version}: {LATER_RELEASE}"
            )
    if type(documents) is not list or [type(item) for item in documents] != [bytes] * 3:
        raise Malformed("expected the three documents of an identity, got other items")
    return documents


def pinned_identity(offered: HubIdentity, hub_id: bytes) -> HubIdentity:
    """The offered identity, if it is that of the pinned hub."""
    if offered.hub_id != hub_id:
        raise Untrusted(
            f"the hub is {offered.hub_id.hex()}, not {hub_id.hex()} as pinned: "
            "another hub answers at this address, or the connection is intercepted"
        )
    return offered


def followed_identity(known: HubIdentity, offered: HubIdentity) -> HubIdentity:
    """The offered identity, if it is the known identity or extends it."""
    pinned_identity(offered, known.hub_id)
    if len(offered.hub_keys) < len(known.hub_keys):
        raise Untrusted(
            "the hub shows fewer keys than before: its identity was restored from a backup"
        )
    for old, new in zip(known.hub_keys, offered.hub_keys, strict=False):
        if _without_end(old) != _without_end(new) or (
            old.valid_until not in (None, new.valid_until)
        ):
            raise Untrusted(
                f"hub key {old.key_id.hex()} differs from the one known here: the hub has two "
                "chains of keys"
            )
    return offered


def newest_identity(known: HubIdentity, offered: HubIdentity) -> HubIdentity:
    """The identity with more keys of two of a hub; Untrusted if neither extends the other.

    Signatures are verified with it: it alone says when the older keys retired.
    """
    if len(offered.hub_keys) < len(known.hub_keys):
        pinned_identity(offered, known.hub_id)
        return followed_identity(offered, known)
    return followed_identity(known, offered)


def _without_end(key: HubKey) -> HubKey:
    """A key without valid_until, which is set when the next key comes."""
    return replace(key, valid_until=None)
