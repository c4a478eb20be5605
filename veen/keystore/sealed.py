"""keystore.enc: the secrets of a client under a passphrase, or open to whoever reads it (spec 15).

Without a passphrase the key is one that everybody can compute: it hides nothing, but a damaged
file is told from a whole one all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Final, NamedTuple

from nacl.exceptions import RuntimeError as SodiumFailed
from nacl.pwhash import argon2id

from veen import aead, cbor
from veen.digest import ht
from veen.errors import Malformed, Undecryptable, Untrusted, VeenError
from veen.schema import Size, Version
from veen.wire import WireMap

Randomness = Callable[[int], bytes]
"""Gives as many fresh random bytes as it is asked for."""

ARGON2ID: Final = "argon2id"
PLAIN: Final = "plain"
_SALT_BYTES: Final = argon2id.SALTBYTES
_NONCE_BYTES: Final = 24
_NOT_HEADER: Final = (6, 7)


class WrongPassphrase(Untrusted):
    """The keystore does not open: another passphrase sealed it, or its bytes were changed."""


class PassphraseNeeded(VeenError):
    """A passphrase is missing, or one is given where none is used."""


class Cost(NamedTuple):
    """What one guess costs: passes over the memory, and bytes of it."""

    passes: int
    memory: int


LEAST: Final = Cost(argon2id.OPSLIMIT_MIN, argon2id.MEMLIMIT_MIN)
MODERATE: Final = Cost(argon2id.OPSLIMIT_MODERATE, argon2id.MEMLIMIT_MODERATE)
MOST: Final = Cost(argon2id.OPSLIMIT_SENSITIVE, argon2id.MEMLIMIT_SENSITIVE)
"""A file may not ask for more: opening one must not take the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecrets(WireMap):
    ver: Version = 1
    kdf: str
    salt: Annotated[bytes, Size(_SALT_BYTES)]
    passes: int
    memory: int
    nonce: Annotated[bytes, Size(_NONCE_BYTES)]
    body: bytes

    def rule(self) -> None:
        if self.kdf == PLAIN:
            if (self.passes, self.memory) != (0, 0):
                raise Malformed("a plain keystore with the cost of a passphrase")
        elif self.kdf != ARGON2ID:
            raise Malformed(f"kdf {self.kdf!r}: only {ARGON2ID} and {PLAIN} are known")
        elif not LEAST.passes <= self.passes <= MOST.passes:
            raise Malformed(f"{self.passes} passes of Argon2id, 1 to {MOST.passes} are allowed")
        elif not LEAST.memory <= self.memory <= MOST.memory:
            raise Malformed(f"Argon2id over {self.memory} bytes, at most {MOST.memory} are allowed")

    @property
    def is_plain(self) -> bool:
        return self.kdf == PLAIN

    @property
    def cost(self) -> Cost:
        return Cost(self.passes, self.memory)

    def open(self, passphrase: bytes | None) -> bytes:
        """The secrets; None opens a plain keystore and no other."""
        key = self._key(passphrase)
        try:
            return aead.decrypt(key, self.nonce, self._header(), self.body)
        except Undecryptable:
            if self.is_plain:
                raise Untrusted("its bytes were changed; put a good copy back") from None
            raise WrongPassphrase(
                "it does not open: the passphrase is another one, or the bytes were changed"
            ) from None

    def sealing(self, secrets: bytes, passphrase: bytes | None) -> SealedSecrets:
        sealed = aead.encrypt(self._key(passphrase), self.nonce, self._header(), secrets)
        return replace(self, body=sealed)

    def _key(self, passphrase: bytes | None) -> bytes:
        if self.is_plain:
            if passphrase is not None:
                raise PassphraseNeeded("it is plain: open it without a passphrase")
            return ht("veen/keystore-plain", self.salt)
        if not passphrase:
            raise PassphraseNeeded("it is sealed with a passphrase, and none was given")
        return _stretched(passphrase, self.salt, self.cost)

    def _header(self) -> bytes:
        """All but nonce and body, so that no field can be changed to weaken the rest."""
        values = self.plain()
        for key in _NOT_HEADER:
            del values[key]
        return cbor.dump(values)


def seal(
    secrets: bytes, passphrase: bytes | None, *, random: Randomness, cost: Cost = MODERATE
) -> SealedSecrets:
    """Secrets under a passphrase, or under none, which is to be an explicit choice."""
    if passphrase == b"":
        raise PassphraseNeeded("an empty passphrase protects nothing")
    empty = SealedSecrets(
        kdf=PLAIN if passphrase is None else ARGON2ID,
        salt=random(_SALT_BYTES),
        passes=0 if passphrase is None else cost.passes,
        memory=0 if passphrase is None else cost.memory,
        nonce=random(_NONCE_BYTES),
        body=b"",
    )
    empty.check()
    return empty.sealing(secrets, passphrase)


def _stretched(passphrase: bytes, salt: bytes, cost: Cost) -> bytes:
    try:
        return argon2id.kdf(aead.KEY_BYTES, passphrase, salt, cost.passes, cost.memory)
    except SodiumFailed as error:
        raise VeenError(
            f"Argon2id needs {cost.memory >> 20} MiB of memory, and they are not to be had"
        ) from error
