"""The identity documents of a data directory and the keys behind them (spec 8.4)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from hub.storage.datadir import DataDir
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.errors import Malformed, Untrusted, VeenError
from veen.hub_identity import (
    CheckpointBinding,
    HubIdentity,
    HubKey,
    binding_line_head,
    encode_journal,
    epoch_span,
    journalled_documents,
    key_id,
    new_identity,
    whole_bindings,
)
from veen.identity_store import SignedIdentity
from veen.label import Profile
from veen.log import layout
from veen.system import durable
from veen.wire import cbor

_log = logging.getLogger(__name__)

Randomness = Callable[[int], bytes]
_TAIL_BYTES: Final = 512
"""More bytes than any line of the binding manifest has."""


class HubKeys:
    """The identity of a hub and the private keys it may sign with."""

    def __init__(self, identity: HubIdentity, private: dict[bytes, SigningKey]) -> None:
        self.identity = identity
        self._private = private
        self.current = private[identity.current.key_id]
        self.valid_from = identity.current.valid_from
        """The time from which the current key signs."""

    @property
    def hub_id(self) -> bytes:
        return self.identity.hub_id

    def delete_retired(self, datadir: DataDir, now: int, needed: Collection[bytes] = ()) -> None:
        """Delete the seeds of retired keys, except those that are still ``needed``.

        A retired key verifies for ever and signs no more. A stolen seed could still sign
        messages that are backdated into its time.
        """
        for key in self.identity.hub_keys[:-1]:
            if key.is_retired(now) and key.key_id in self._private and key.key_id not in needed:
                del self._private[key.key_id]
                _delete_seed(datadir, key.key_id)

    @property
    def holds_older(self) -> bool:
        """Whether there are seeds of older keys."""
        return len(self._private) > 1

    def signer(self, epoch: int, profile: Profile, hub_ts: int) -> bytes:
        """The key_id of the key that signs a checkpoint over a last entry of ``hub_ts``."""
        return key_id(self._key_of_epoch(epoch, profile, hub_ts).public)

    def missing_witnesses(self, now: int) -> list[HubKey]:
        """The keys that must witness checkpoints now and whose seeds are missing."""
        older = (key for key in self.identity.hub_keys[:-1] if key.overlaps(now, now))
        return [key for key in older if key.key_id not in self._private]

    def sign_checkpoint(
        self, checkpoint: Checkpoint, profile: Profile, hub_ts: int, now: int
    ) -> Checkpoint:
        """Sign with a key of the epoch; while two keys overlap, both witness it.

        ``hub_ts`` is that of the receipt at upto_seq: no key retired before it can sign.
        """
        signed = checkpoint.signed(self._key_of_epoch(checkpoint.epoch, profile, hub_ts))
        older = (key for key in self.identity.hub_keys[:-1] if key.overlaps(now, now))
        witnesses = [self._private[key.key_id] for key in older if key.key_id in self._private]
        if not witnesses:
            return signed
        for witness in (*witnesses, self.current):
            signed = signed.witnessed(witness)
        return signed

    def _key_of_epoch(self, epoch: int, profile: Profile, hub_ts: int) -> SigningKey:
        """The newest key valid in an epoch; the key may be rotated before the epoch is closed."""
        start, end = epoch_span(epoch, profile)
        last = None if end is None else max(end, hub_ts)
        for key in reversed(self.identity.hub_keys):
            if key.overlaps(max(start, hub_ts), last) and key.key_id in self._private:
                return self._private[key.key_id]
        return self.current


def create(datadir: DataDir, random: Randomness, now: int) -> HubKeys:
    """Create a hub: its first key, its identity and the documents that bind them."""
    key = _new_key(datadir, random)
    identity = new_identity(key.public, now, "data-directory")
    _write_documents(datadir, identity, key)
    return HubKeys(identity, {identity.current.key_id: key})


def load(datadir: DataDir) -> HubKeys:
    """The keys of a directory's hub; its documents are checked against each other."""
    identity = read_identity(datadir)
    private = {
        key.key_id: signing_key
        for key in identity.hub_keys
        if (signing_key := _read_key(datadir, key.key_id))
    }
    if identity.current.key_id not in private:
        raise VeenError(
            f"no private key for the current hub key {identity.current.key_id.hex()} in "
            f"{datadir.keys}: restore it; without it this hub can be read but not continued"
        )
    return HubKeys(identity, private)


def load_or_create(datadir: DataDir, random: Randomness, now: int) -> HubKeys:
    _finish_documents(datadir)
    if datadir.file(layout.IDENTITY).exists():
        keys = load(datadir)
        for key in keys.missing_witnesses(now):
            _log.warning(
                "no seed of hub key %s in %s: until hub_ts %s checkpoints lack its witness "
                "signature, and clients refuse them; put the seed back",
                key.key_id.hex(), datadir.keys, key.valid_until,
            )  # fmt: skip
        return keys
    if not datadir.is_empty():
        raise VeenError(f"{datadir.root} has a log but no {layout.IDENTITY}: restore it first")
    return create(datadir, random, now)


def read_signed_identity(datadir: DataDir) -> SignedIdentity:
    """The verified identity of a directory, without its private keys."""
    identity = HubIdentity.decode(_document(datadir, layout.IDENTITY))
    signature = _document(datadir, layout.IDENTITY_SIG)
    identity.verify(signature)
    if _document(datadir, layout.KEY_MAP) != _key_map(identity):
        raise Untrusted(f"{layout.KEY_MAP} does not match {layout.IDENTITY}")
    return SignedIdentity(identity, signature)


def read_identity(datadir: DataDir) -> HubIdentity:
    return read_signed_identity(datadir).identity


def _document(datadir: DataDir, name: str) -> bytes:
    try:
        return datadir.file(name).read_bytes()
    except FileNotFoundError:
        raise VeenError(
            f"{datadir.root} has no {name}: expected the complete data directory of a hub"
        ) from None


def rotate(datadir: DataDir, random: Randomness, now: int, overlap_sec: int) -> HubKeys:
    """Add a key that signs from now on; the old one witnesses checkpoints for the overlap."""
    _finish_documents(datadir)
    keys = load(datadir)
    new = _new_key(datadir, random)
    identity = keys.identity.rotated(keys.current, new.public, now, overlap_sec)
    _write_documents(datadir, identity, new)
    return load(datadir)


def bind(datadir: DataDir, keys: HubKeys, checkpoint: Checkpoint) -> None:
    """Append a checkpoint to the binding manifest."""
    signer = next(key for key in keys.identity.hub_keys if checkpoint.is_signed_by(key.hub_pk))
    line = CheckpointBinding(
        hub_id=keys.hub_id,
        key_id=signer.key_id,
        label=checkpoint.label_curr,
        epoch=checkpoint.epoch,
        upto_seq=checkpoint.upto_seq,
        mmr_root=checkpoint.mmr_root,
    )
    handle = durable.open_file(datadir.file(layout.CHECKPOINT_BINDING), os.O_RDWR | os.O_CREAT)
    try:
        whole = _whole_lines(handle, keys.hub_id)
        if whole < os.fstat(handle).st_size:
            durable.cut(handle, whole)
        durable.append(handle, whole, line.encode())
    finally:
        os.close(handle)


def _whole_lines(handle: int, hub: bytes) -> int:
    """The size of the manifest up to its last complete line."""
    size = os.fstat(handle).st_size
    start = max(0, size - _TAIL_BYTES)
    tail = os.pread(handle, _TAIL_BYTES, start)
    head = binding_line_head(hub)
    last = tail.rfind(head)
    if last < 0:
        return 0 if head.startswith(tail) else size
    try:
        return start + cbor.skip(tail, last)
    except Malformed:
        return start + last


def settle_bindings(datadir: DataDir) -> set[tuple[bytes, int]]:
    """The label and upto_seq of every line; the manifest is synced first."""
    path = datadir.file(layout.CHECKPOINT_BINDING)
    handle = durable.open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        durable.sync(handle)
    finally:
        os.close(handle)
    durable.sync_directory(path.parent)
    return {(line.label, line.upto_seq) for line in read_bindings(datadir)}


def read_bindings(datadir: DataDir) -> list[CheckpointBinding]:
    """The lines of the manifest up to the first that is malformed, which ``verify`` reports."""
    try:
        raw = datadir.file(layout.CHECKPOINT_BINDING).read_bytes()
    except FileNotFoundError:
        return []
    return list(whole_bindings(raw))


def _new_key(datadir: DataDir, random: Randomness) -> SigningKey:
    seed = random(32)
    key = SigningKey(seed)
    durable.write_once(_seed_file(datadir, key_id(key.public)), seed)
    return key


def _read_key(datadir: DataDir, identifier: bytes) -> SigningKey | None:
    path = _seed_file(datadir, identifier)
    return SigningKey(path.read_bytes()) if path.exists() else None


def _delete_seed(datadir: DataDir, identifier: bytes) -> None:
    """Delete a seed; a failure is logged, and the next start tries again."""
    path = _seed_file(datadir, identifier)
    try:
        path.unlink(missing_ok=True)
        durable.sync_directory(datadir.keys)
    except OSError as error:
        _log.warning("could not delete the retired seed %s: %s; delete it by hand", path, error)
    else:
        _log.info("deleted the seed of hub key %s, which has retired", identifier.hex())


def _seed_file(datadir: DataDir, identifier: bytes) -> Path:
    return datadir.keys / f"hub-{identifier.hex()}.key"


def _write_documents(datadir: DataDir, identity: HubIdentity, current: SigningKey) -> None:
    """Write the three documents atomically: a journal has them first, and a start replays it."""
    documents = [identity.encode(), identity.signature_by(current), _key_map(identity)]
    durable.write(_journal(datadir), encode_journal(documents))
    _finish_documents(datadir)


def _finish_documents(datadir: DataDir) -> None:
    journal = _journal(datadir)
    if not journal.exists():
        return
    names = (layout.IDENTITY, layout.IDENTITY_SIG, layout.KEY_MAP)
    for name, document in zip(names, _journalled(journal), strict=True):
        durable.write(datadir.file(name), document)
    journal.unlink()
    durable.sync_directory(datadir.root)


def _journalled(journal: Path) -> list[bytes]:
    try:
        return journalled_documents(journal.read_bytes())
    except Malformed as error:
        raise type(error)(f"{journal}: {error}") from error


def _journal(datadir: DataDir) -> Path:
    return datadir.root / "hub-identity.next"


def _key_map(identity: HubIdentity) -> bytes:
    return cbor.dump([[key.key_id, key.hub_pk] for key in identity.hub_keys])
