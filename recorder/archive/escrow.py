"""The private keys of a hub, sealed to an identity so that an archive alone can restart the hub.

The list of the keys is in the clear, so that anyone can check that the current key is included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from veen.crypto import HPKE_ENC_BYTES, HpkeRecipient, HpkeSender, SigningKey, hpke_public_key
from veen.digest import ht
from veen.errors import Malformed, Undecryptable, Untrusted, VeenError
from veen.hub_identity import HubIdentity, key_id
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Size, Version

KEYS: Final = "keys"
_SEED_BYTES: Final = 32
Seeds = Mapping[bytes, bytes]
"""Private keys by key_id."""


class NoKeys(VeenError):
    """The current private key of the hub is not available here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escrow(WireMap):
    """The private keys of a hub, sealed to a recipient."""

    ver: Version = 1
    hub_id: Bytes32
    recipient: Bytes32
    """The X25519 public key that it is sealed to."""
    key_ids: tuple[Bytes32, ...]
    enc: Annotated[bytes, Size(HPKE_ENC_BYTES)]
    body: bytes

    def rule(self) -> None:
        if list(self.key_ids) != sorted(set(self.key_ids)):
            raise Malformed("escrow: expected key_ids sorted and unique")

    def open(self, readers: Sequence[bytes]) -> dict[bytes, bytes]:
        """Decrypt the private keys with the recipient's key, if it is among ``readers``."""
        private = next(
            (reader for reader in readers if hpke_public_key(reader) == self.recipient), None
        )
        if private is None:
            raise Undecryptable("the escrow is sealed to another identity than those given")
        aad = _aad(self.hub_id, self.recipient, self.key_ids)
        inside = _Seeds.decode(HpkeRecipient(self.enc, private).open(aad, self.body))
        seeds = {_id_of(seed): seed for seed in inside.seeds}
        if tuple(sorted(seeds)) != self.key_ids:
            raise Untrusted("the escrow: expected the keys of its key_ids, got others")
        return seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seeds(WireMap):
    seeds: tuple[Bytes32, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class EscrowSealer:
    """Seals keys to a recipient; ``ephemeral`` is 32 fresh random bytes, for one use."""

    recipient: bytes
    ephemeral: bytes = field(repr=False)

    def seal(self, hub_id: bytes, seeds: Seeds) -> Escrow:
        sender = HpkeSender(self.recipient, self.ephemeral)
        key_ids = tuple(sorted(seeds))
        inside = _Seeds(seeds=tuple(seeds[identifier] for identifier in key_ids))
        return Escrow(
            hub_id=hub_id,
            recipient=self.recipient,
            key_ids=key_ids,
            enc=sender.enc,
            body=sender.seal(_aad(hub_id, self.recipient, key_ids), inside.encode()),
        )

    def has_sealed(self, escrow: Escrow, seeds: Seeds) -> bool:
        return (escrow.recipient, escrow.key_ids) == (self.recipient, tuple(sorted(seeds)))


def file_name(identifier: bytes) -> str:
    """The file name of a private key in ``keys/``."""
    return f"hub-{identifier.hex()}.key"


def in_use(seeds: Seeds, identity: HubIdentity, hub_ts: int) -> dict[bytes, bytes]:
    """The keys that had not retired at a hub time; retired keys are never needed again."""
    retired = {key.key_id for key in identity.hub_keys if key.is_retired(hub_ts)}
    return {identifier: seed for identifier, seed in seeds.items() if identifier not in retired}


def read_seeds(folder: Path, identity: HubIdentity) -> dict[bytes, bytes]:
    """Read the hub's private keys from a directory; NoKeys when the current key is missing."""
    seeds = {}
    for key in identity.hub_keys:
        path = folder / file_name(key.key_id)
        if path.exists():
            seeds[key.key_id] = path.read_bytes()
            if _id_of(seeds[key.key_id]) != key.key_id:
                raise Untrusted(
                    f"{path}: expected the private key with the key_id of its name, got another"
                )
    refuse_without_current(identity, seeds, str(folder))
    return seeds


def refuse_without_current(identity: HubIdentity, seeds: Seeds, where: str) -> None:
    current = identity.current.key_id
    if current not in seeds:
        raise NoKeys(f"{where} does not hold the current hub key {current.hex()}")


def _id_of(seed: bytes) -> bytes:
    return key_id(SigningKey(seed).public) if len(seed) == _SEED_BYTES else b""


def _aad(hub_id: bytes, recipient: bytes, key_ids: Sequence[bytes]) -> bytes:
    return ht("veen/escrow", hub_id, recipient, *key_ids)
