"""Clients as tests want them, and the log as an independent reader sees it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import cbor2
from nacl.public import PrivateKey

from support.hub.spec_client import Client as Reader
from support.hub.spec_objects import key, label_of, unseal
from veen import captoken
from veen.captoken import Rate
from veen.client.client import Client
from veen.client.transport import RetryPolicy
from veen.crypto import SigningKey
from veen.keystore.directory import ClientDir
from veen.label import stream_id
from veen.system.environment import Runtime

HASTY = RetryPolicy(attempts=4, first_sec=0.01, most_sec=0.05, timeout_sec=5)
READER_TOKEN = "the reader's token"
ISSUER = SigningKey(sha256(b"issuer").digest())
OPEN = """
admission = "open"
reads = "open"
"""
GATED = f"""
issuers = ["{ISSUER.public.hex()}"]
[[principals]]
name = "reader"
role = "recorder_admin"
token_sha256 = "{sha256(READER_TOKEN.encode()).hexdigest()}"
read = ["*"]
"""


def a_world(**more: Any) -> Runtime:
    """The world as it is, but for what a test puts in its place."""
    usual: dict[str, Any] = {
        "clock": lambda: int(time.time()), "random": os.urandom, "sleep": time.sleep,
    }  # fmt: skip
    return Runtime(**(usual | more))


def a_client(directory: Path, url: str, **more: Any) -> Client:
    """The client of a directory, which is made where there is none."""
    home = ClientDir(directory)
    if not home.keystore.exists():
        home.create(now=int(time.time()), random=os.urandom, passphrase=None)
    return Client.open(directory, url, **({"retry_policy": HASTY} | more))


def a_token(client_id: bytes, stream: str, ttl: int = 3_600, rate: Rate | None = None) -> Any:
    return captoken.issue(
        ISSUER, subject_pk=client_id, stream_ids=[stream_id(stream)], ttl=ttl, rate=rate
    )


def authorized(client: Client, stream: str, **more: Any) -> None:
    """Give a client a capability that the hub knows."""
    token = a_token(client.session.identity.client_id, stream, **more)
    client.session.api.authorize(token)
    client.renew(token)


def log_of(reader: Reader, stream: str, epoch: int = 0) -> Any:
    """The verified log of a stream, read without any code of ours."""
    return reader.read(reader.log(label_of(reader.hub_id, stream, epoch)))


def bodies_of(log: Any, client: Client) -> list[bytes]:
    """The bodies in a log that were sealed to a client, in their order."""
    return [body_of(msg, client) for msg, _ in log.entries]


def body_of(msg: list[Any], client: Client) -> bytes:
    return unseal(msg, PrivateKey(client.session.identity.readers()[0]))[1]


def another_key(name: str) -> Any:
    return key(f"somebody else on {name}")


def receipts_in(root: Path) -> list[Any]:
    """The receipts a client kept, each as plain CBOR."""
    result, file = [], BytesIO((root / "receipts.cborseq").read_bytes())
    while file.tell() < len(file.getbuffer()):
        result.append(cbor2.load(file))
    return result


@contextmanager
def silent_port() -> Iterator[int]:
    """A port on which connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]
