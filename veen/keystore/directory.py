"""The directory of a client: identity, state and outbox (spec 15, OS6.3)."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple, Self

from veen.errors import Malformed, Untrusted, VeenError
from veen.keystore.card import Identity, IdentityCard, identity_of, read_card, repair_card_file
from veen.keystore.sealed import (
    MODERATE,
    PREKEY_SEC,
    Cost,
    PassphraseNeeded,
    Randomness,
    SealedSecrets,
    Secrets,
    generate_secrets,
    make_private_directory,
    open_unlinked,
    read_private_file,
    seal,
    verify_private_file,
)
from veen.system import durable
from veen.system.filelock import HolderLock, LockHeld, LockWait

_PROGRAM_WORDS: Final = 3
_PROGRAM_LENGTH: Final = 120


class NoIdentity(VeenError):
    """A directory without a keystore."""


class IdentityExists(VeenError):
    """A directory that has, or had, an identity."""


class Locked(VeenError):
    """Another process uses the directory."""


class _Opened(NamedTuple):
    identity: Identity
    secrets: Secrets
    cost: Cost


@dataclass(frozen=True, slots=True)
class ClientDir:
    root: Path

    @property
    def keystore(self) -> Path:
        return self.root / "keystore.enc"

    @property
    def card(self) -> Path:
        return self.root / "identity_card.pub"

    @property
    def state(self) -> Path:
        return self.root / "state.json"

    @property
    def closed_views(self) -> Path:
        return self.root / "closed-views.sqlite"

    @property
    def outbox(self) -> Path:
        return self.root / "outbox.sqlite"

    @property
    def receipts(self) -> Path:
        return self.root / "receipts.cborseq"

    @property
    def evidence(self) -> Path:
        return self.root / "evidence"

    @property
    def attachments(self) -> Path:
        return self.root / "attachments"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    def refuse_inhabited(self) -> None:
        """Raise IdentityExists where no identity may be created."""
        if os.path.lexists(self.keystore):
            raise IdentityExists(
                f"{self.keystore} exists: it is never replaced. Take another directory, or "
                "give this identity a new client_id with veen id rotate"
            )
        for path in (self.state, self.outbox, self.receipts):
            if os.path.lexists(path):
                raise IdentityExists(
                    f"{path} is of an identity whose {self.keystore.name} is missing: "
                    "restore it, or use another directory"
                )

    def create(
        self,
        *,
        now: int,
        random: Randomness,
        passphrase: bytes | None,
        prekey_sec: int = PREKEY_SEC,
        cost: Cost = MODERATE,
    ) -> Identity:
        """Create an identity; without a passphrase the keystore is not protected.

        The keystore is written last: without it the directory has no identity.
        """
        secrets = generate_secrets(now, random, prekey_sec)
        identity = identity_of(secrets, is_plain=passphrase is None)
        sealed = seal(secrets.encode(), passphrase, random=random, cost=cost)
        self.refuse_inhabited()
        make_private_directory(self.root)
        with ClientDirLock(self):
            self.refuse_inhabited()
            for directory in (self.evidence, self.attachments):
                durable.make_directory(directory)
            durable.write(self.card, identity.card.encode())
            durable.write(self.keystore, sealed.encode())
        return identity

    def open(self, passphrase: bytes | None) -> Identity:
        """Open the identity; the caller holds the lock.

        A card from before an interrupted rotation is written again.
        """
        return self._opened(passphrase).identity

    def reader_keys(self, passphrase: bytes | None) -> tuple[bytes, ...]:
        """The private X25519 keys that open what is sealed to this identity, newest first.

        No lock is taken and nothing is written, so several processes can read with one keystore
        while each signs with an identity of its own. ``rotate`` replaces the file atomically.
        """
        sealed = self.sealed()
        try:
            opened = sealed.open(None if sealed.is_plain else passphrase)
            return Secrets.decode(opened).readers()
        except (Malformed, Untrusted, PassphraseNeeded) as error:
            raise type(error)(f"{self.keystore}: {error}") from error

    def rotate(self, now: int, random: Randomness, passphrase: bytes | None) -> Identity:
        """Replace client_id and prekey; the keystore has the old ones."""
        self._verify_private()
        with ClientDirLock(self):
            return self._rotated(now, random, passphrase)

    def sealed(self) -> SealedSecrets:
        """The sealed keystore; its protection can be seen without opening it."""
        self._verify_private()
        raw = read_private_file(self.keystore)
        try:
            return SealedSecrets.decode(raw)
        except Malformed as error:
            raise Malformed(f"{self.keystore} is not a complete keystore: {error}") from error

    def read_card(self) -> IdentityCard:
        """The card of the directory, verified; no passphrase is needed."""
        self._verify_private()
        try:
            return read_card(self.card)
        except FileNotFoundError:
            raise NoIdentity(
                f"{self.card} is missing: whatever opens the keystore makes it again, "
                "as veen id rotate does"
            ) from None

    def no_identity(self) -> NoIdentity:
        return NoIdentity(
            f"{self.root} has no {self.keystore.name}: make an identity with "
            f"veen keygen --out {shlex.quote(str(self.root))}"
        )

    def _opened(self, passphrase: bytes | None) -> _Opened:
        sealed = self.sealed()
        try:
            secrets = Secrets.decode(sealed.open(passphrase))
        except (Malformed, Untrusted, PassphraseNeeded) as error:
            raise type(error)(f"{self.keystore}: {error}") from error
        identity = identity_of(secrets, is_plain=sealed.is_plain)
        repair_card_file(self.card, identity)
        return _Opened(identity, secrets, sealed.cost)

    def _rotated(self, now: int, random: Randomness, passphrase: bytes | None) -> Identity:
        opened = self._opened(passphrase)
        secrets = opened.secrets.rotated(now, random)
        identity = identity_of(secrets, is_plain=opened.identity.is_plain)
        sealed = seal(secrets.encode(), passphrase, random=random, cost=opened.cost)
        durable.write(self.keystore, sealed.encode())
        durable.write(self.card, identity.card.encode())
        return identity

    def _verify_private(self) -> None:
        if not os.path.lexists(self.keystore):
            raise self.no_identity()
        verify_private_file(self.root.resolve())
        for path in (self.state, self.closed_views, self.outbox, self.receipts):
            if os.path.lexists(path):
                verify_private_file(path)


def _program() -> str:
    """The program of this process with its first arguments, up to the first option."""
    program, *arguments = sys.argv or ["python"]
    path = Path(program)
    name = path.parent.name if path.name == "__main__.py" else path.name
    plain = list(
        takewhile(lambda argument: not argument.startswith("-"), arguments[:_PROGRAM_WORDS])
    )
    return " ".join([name or "python", *plain])[:_PROGRAM_LENGTH]


class ClientDirLock:
    """The exclusive lock on a client directory, released when the process ends.

    Raises Locked if another process holds it for longer than ``wait``.
    """

    def __init__(self, directory: ClientDir, wait: LockWait | None = None) -> None:
        try:
            handle = open_unlinked(directory.lock, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            raise directory.no_identity() from None
        try:
            self._lock = HolderLock(handle, wait)
        except LockHeld as error:
            raise Locked(
                f"{directory.root} is in use by {error.holder or 'another process'}: one process "
                "at a time acts as an identity. A service keeps its identity as long as it runs: "
                "act as another one (--client DIR). A command releases it at its end: run this "
                "again then"
            ) from None
        self._lock.write_holder(f"process {os.getpid()} on {socket.gethostname()} ({_program()})")

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
