"""A zone on a gated hub: who writes has a capability, and the service reads as a principal."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from support.recorder.query_world import ADMIN, OWN, STREAMS, Zone, digest_of
from veen import captoken
from veen.captoken import CapToken
from veen.crypto import SigningKey
from veen.keystore.directory import ClientDir
from veen.label import stream_id

ISSUER = SigningKey(sha256(b"issuer of the zone").digest())


def hub_toml(folder: Path) -> str:
    """Settings of a hub that knows the service of ``folder``, whose identity this makes."""
    service = ClientDir(folder / "service").create(
        now=int(time.time()), random=os.urandom, passphrase=None
    )
    streams = "".join(f'[[streams]]\nname = "{item}"\n' for item in (*STREAMS, *OWN))
    return (
        f'issuers = ["{ISSUER.public.hex()}"]\n{streams}'
        f'[[principals]]\nname = "admin"\nrole = "recorder_admin"\nread = ["*"]\n'
        f'token_sha256 = "{digest_of(ADMIN)}"\n'
        f'[[principals]]\nname = "query"\nrole = "query"\nread = ["record/*"]\n'
        f'write = ["record/query/*"]\npublic_key = "{service.client_id.hex()}"\n'
    )


class GatedZone(Zone):
    def __init__(self, folder: Path, hub: Any) -> None:
        super().__init__(folder, hub)
        client = 'client = "service"\n'
        settings = self.config.read_text().replace(client, f'{client}principal = "query"\n')
        self.config.write_text(settings)
        self.producer.renew(self._issued("producer", tuple(STREAMS)))

    def capability(self, *streams: str, subject: str = "service") -> Path:
        """The file of a capability that the hub knows."""
        path = self.folder / f"{subject}.cap"
        path.write_bytes(self._issued(subject, streams).encode())
        return path

    def _issued(self, subject: str, streams: tuple[str, ...]) -> CapToken:
        token = captoken.issue(
            ISSUER,
            subject_pk=ClientDir(self.folder / subject).open(None).client_id,
            stream_ids=[stream_id(stream) for stream in streams],
            ttl=86_400,
        )
        self.admin.authorize(token)
        return token
