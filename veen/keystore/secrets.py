"""What keystore.enc holds: the private keys of a client, and which client_ids were its own.

Of a retired client_id only the public key is left: it tells own messages from others', and
nothing can be signed with it any more. Prekeys stay, for what was sealed to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from veen import hpke, sign
from veen.errors import Malformed
from veen.keystore.sealed import Randomness
from veen.schema import Bytes32, Version
from veen.wire import WireMap

DAY_SEC: Final = 86_400
PREKEY_SEC: Final = 365 * DAY_SEC
_KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecret(WireMap):
    """The key that signs messages now."""

    seed: Bytes32 = field(repr=False)
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredClient(WireMap):
    """A client_id of the past, with the time in which it was in use."""

    client_id: Bytes32
    created_at: int
    retired_at: int

    def rule(self) -> None:
        if self.retired_at < self.created_at:
            raise Malformed("a client_id that was retired before it was made")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrekeySecret(WireMap):
    private: Bytes32 = field(repr=False)
    created_at: int
    expires_at: int

    def rule(self) -> None:
        if self.expires_at <= self.created_at:
            raise Malformed("a prekey that expires before it can be used")


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
            raise Malformed("a keystore without a prekey")
        clients = [sign.PrivateKey(self.client.seed).public]
        clients += [retired.client_id for retired in self.retired]
        privates = [self.id_dh, *(prekey.private for prekey in self.prekeys)]
        if len(set(clients)) != len(clients) or len(set(privates)) != len(privates):
            raise Malformed("a key stands twice in the keystore")

    def rotated(self, now: int, random: Randomness) -> Secrets:
        """A new client key and a new prekey, for as long as the one before.

        A clock that went back does not make a client_id end before it began.
        """
        at = max(now, self.client.created_at)
        last = self.prekeys[-1]
        retired = RetiredClient(
            client_id=sign.PrivateKey(self.client.seed).public,
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


def generate(now: int, random: Randomness, prekey_sec: int = PREKEY_SEC) -> Secrets:
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
    return PrekeySecret(private=random(hpke.KEY_BYTES), created_at=now, expires_at=now + seconds)
