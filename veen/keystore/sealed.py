"""keystore.enc: the private keys of a client, sealed with a passphrase or plain (spec 15).

A plain keystore is encrypted with a key that anyone can compute: it hides nothing, but damage is
detected. Of a retired client_id only the public key is left, to recognise own messages; old prekeys
stay, for what was sealed to them. Secrets are stored in files that only their owner can access.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from nacl.exceptions import RuntimeError as SodiumFailed
from nacl.pwhash import argon2id

from veen.crypto import AEAD_KEY_BYTES, HPKE_KEY_BYTES, SigningKey, aead_decrypt, aead_encrypt
from veen.digest import ht
from veen.errors import Malformed, Undecryptable, Untrusted, VeenError
from veen.system import durable
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Size, Version

ANY_ACCESS: Final = 0o077
PRIVATE_WRITE_FLAGS: Final = 0o022
MAX_BYTES: Final = 64 << 20
Randomness = Callable[[int], bytes]
"""Returns the given number of random bytes."""
ARGON2ID: Final = "argon2id"
PLAIN: Final = "plain"
_SALT_BYTES: Final = argon2id.SALTBYTES
_NONCE_BYTES: Final = 24
_NOT_HEADER: Final = (6, 7)
DAY_SEC: Final = 86_400
PREKEY_SEC: Final = 365 * DAY_SEC
_KEY_BYTES: Final = 32


class NotPrivate(VeenError):
    """A file that others than its owner can access."""


def read_private_file(path: Path, forbidden: int = ANY_ACCESS) -> bytes:
    """Read a regular file of ours to which others have none of the rights ``forbidden``."""
    # O_NONBLOCK: opening a pipe must not wait for a writer.
    handle = open_unlinked(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NotPrivate(f"{path} is not a regular file")
        _verify(path, status, forbidden)
        if status.st_size > MAX_BYTES:
            raise Malformed(
                f"{path} is too large: expected at most {MAX_BYTES} bytes, got {status.st_size}"
            )
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(MAX_BYTES)
    finally:
        os.close(handle)


def open_unlinked(path: Path, flags: int) -> int:
    """Open a file; a symbolic link is not followed."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, durable.FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _linked(path) from error
        raise


def verify_private_file(path: Path, forbidden: int = ANY_ACCESS) -> None:
    """Raise NotPrivate for a file or directory that is not ours or that others can access."""
    _verify(path, path.lstat(), forbidden)


def make_private_directory(path: Path) -> None:
    """Create a private directory durably; an existing one that others can access must be empty."""
    if not path.is_dir():
        _make_directories(path)
    elif path.stat().st_mode & ANY_ACCESS:
        _verify_empty(path)
        path.chmod(durable.DIR_MODE)
        # Again: until the chmod others could have created files that secrets are written to.
        _verify_empty(path)
    verify_private_file(path.resolve())


def _make_directories(path: Path) -> None:
    if not path.parent.is_dir():
        _make_directories(path.parent)
    path.mkdir(mode=durable.DIR_MODE, exist_ok=True)
    durable.sync_directory(path.parent)


def _verify_empty(path: Path) -> None:
    if any(path.iterdir()):
        raise NotPrivate(
            f"others have access to {path}, and it is not empty: "
            "use a directory that does not exist yet"
        )


def _verify(path: Path, status: os.stat_result, forbidden: int) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _linked(path)
    if status.st_uid != os.geteuid():
        raise NotPrivate(f"{path} belongs to user {status.st_uid}: run veen as that user")
    if status.st_mode & forbidden:
        right = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        raise NotPrivate(
            f"others have access to {path} (mode {stat.S_IMODE(status.st_mode):04o}): "
            f"run chmod {right:o} {shlex.quote(str(path))}"
        )


def _linked(path: Path) -> NotPrivate:
    return NotPrivate(f"{path} is a symbolic link: put the file itself there")


class WrongPassphrase(Untrusted):
    """The keystore does not open: the passphrase is wrong, or the bytes were changed."""


class PassphraseNeeded(VeenError):
    """A passphrase is missing, or is given for a plain keystore."""


class Cost(NamedTuple):
    """The cost of Argon2id: passes, and bytes of memory."""

    passes: int
    memory: int


LEAST: Final = Cost(argon2id.OPSLIMIT_MIN, argon2id.MEMLIMIT_MIN)
MODERATE: Final = Cost(argon2id.OPSLIMIT_MODERATE, argon2id.MEMLIMIT_MODERATE)
MOST: Final = Cost(argon2id.OPSLIMIT_SENSITIVE, argon2id.MEMLIMIT_SENSITIVE)
"""The limit for files: opening a keystore must not exhaust the machine."""


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
                raise Malformed("plain keystore: expected no cost of a passphrase, got one")
        elif self.kdf != ARGON2ID:
            raise Malformed(f"kdf: expected {ARGON2ID} or {PLAIN}, got {self.kdf!r}")
        elif not LEAST.passes <= self.passes <= MOST.passes:
            raise Malformed(
                f"Argon2id: expected {LEAST.passes} to {MOST.passes} passes, got {self.passes}"
            )
        elif not LEAST.memory <= self.memory <= MOST.memory:
            raise Malformed(
                f"Argon2id: expected {LEAST.memory} to {MOST.memory} bytes of memory, got "
                f"{self.memory}"
            )

    @property
    def is_plain(self) -> bool:
        return self.kdf == PLAIN

    @property
    def cost(self) -> Cost:
        return Cost(self.passes, self.memory)

    def open(self, passphrase: bytes | None) -> bytes:
        """Open the secrets; a plain keystore is opened with None."""
        key = self._key(passphrase)
        try:
            return aead_decrypt(key, self.nonce, self._header(), self.body)
        except Undecryptable:
            if self.is_plain:
                raise Untrusted("its bytes were changed; put a good copy back") from None
            raise WrongPassphrase(
                "decryption failed: wrong passphrase, or the bytes were changed"
            ) from None

    def sealing(self, secrets: bytes, passphrase: bytes | None) -> SealedSecrets:
        sealed = aead_encrypt(self._key(passphrase), self.nonce, self._header(), secrets)
        return replace(self, body=sealed)

    def _key(self, passphrase: bytes | None) -> bytes:
        if self.is_plain:
            if passphrase is not None:
                raise PassphraseNeeded("it is plain: open it without a passphrase")
            return ht("veen/keystore-plain", self.salt)
        if not passphrase:
            raise PassphraseNeeded("it is sealed with a passphrase, and none was given")
        return _derive_key(passphrase, self.salt, self.cost)

    def _header(self) -> bytes:
        """All but nonce and body, as additional data: no field can be changed."""
        values = self.plain()
        for key in _NOT_HEADER:
            del values[key]
        return cbor.dump(values)


def seal(
    secrets: bytes, passphrase: bytes | None, *, random: Randomness, cost: Cost = MODERATE
) -> SealedSecrets:
    """Seal secrets with a passphrase; None makes a plain keystore."""
    if passphrase == b"":
        raise PassphraseNeeded(
            "expected a passphrase, got an empty one; give one, or use --insecure-plain"
        )
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


def _derive_key(passphrase: bytes, salt: bytes, cost: Cost) -> bytes:
    try:
        return argon2id.kdf(AEAD_KEY_BYTES, passphrase, salt, cost.passes, cost.memory)
    except SodiumFailed as error:
        raise VeenError(
            f"Argon2id needs {cost.memory >> 20} MiB of memory, which are not available; free "
            "memory and try again"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecret(WireMap):
    """The current key that signs messages."""

    seed: Bytes32 = field(repr=False)
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredClient(WireMap):
    """A former client_id, with the time in which it was used."""

    client_id: Bytes32
    created_at: int
    retired_at: int

    def rule(self) -> None:
        if self.retired_at < self.created_at:
            raise Malformed(
                "client_id: expected a retirement after its creation, got an earlier time"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrekeySecret(WireMap):
    private: Bytes32 = field(repr=False)
    created_at: int
    expires_at: int

    def rule(self) -> None:
        if self.expires_at <= self.created_at:
            raise Malformed("prekey: expected an end after its start, got an earlier time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets(WireMap):
    ver: Version = 1
    id_sign: Bytes32 = field(repr=False)
    id_dh: Bytes32 = field(repr=False)
    client: ClientSecret
    retired: tuple[RetiredClient, ...]
    """The oldest first, as the prekeys."""
    prekeys: tuple[PrekeySecret, ...]
    outbox_key: Bytes32 = field(repr=False)

    def rule(self) -> None:
        if not self.prekeys:
            raise Malformed("keystore: expected at least one prekey, got none")
        clients = [SigningKey(self.client.seed).public]
        clients += [retired.client_id for retired in self.retired]
        privates = [self.id_dh, *(prekey.private for prekey in self.prekeys)]
        if len(set(clients)) != len(clients) or len(set(privates)) != len(privates):
            raise Malformed("keystore: duplicate key")

    def rotated(self, now: int, random: Randomness) -> Secrets:
        """The secrets with a new client key, and a new prekey with the lifetime of the last.

        If the clock went back, the old client_id ends when it was created.
        """
        at = max(now, self.client.created_at)
        last = self.prekeys[-1]
        retired = RetiredClient(
            client_id=SigningKey(self.client.seed).public,
            created_at=self.client.created_at,
            retired_at=at,
        )
        return replace(
            self,
            client=_new_client(at, random),
            retired=(*self.retired, retired),
            prekeys=(*self.prekeys, _new_prekey(at, random, last.expires_at - last.created_at)),
        )

    def readers(self) -> tuple[bytes, ...]:
        """The private X25519 keys that open what was sealed to this client, newest first."""
        newest_first = [prekey.private for prekey in reversed(self.prekeys)]
        return (*newest_first, self.id_dh)


def generate_secrets(now: int, random: Randomness, prekey_sec: int = PREKEY_SEC) -> Secrets:
    return Secrets(
        id_sign=random(_KEY_BYTES),
        id_dh=random(_KEY_BYTES),
        client=_new_client(now, random),
        retired=(),
        prekeys=(_new_prekey(now, random, prekey_sec),),
        outbox_key=random(_KEY_BYTES),
    )


def _new_client(now: int, random: Randomness) -> ClientSecret:
    return ClientSecret(seed=random(_KEY_BYTES), created_at=now)


def _new_prekey(now: int, random: Randomness, seconds: int) -> PrekeySecret:
    return PrekeySecret(private=random(HPKE_KEY_BYTES), created_at=now, expires_at=now + seconds)
