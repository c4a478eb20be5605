"""A real hub for the HTTP tests: its sequencer in a process of its own, with a clock we set."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from hub.api.app import create_app
from hub.settings import HubSettings, load
from hub.storage.datadir import DataDir
from hub.storage.identity import read_identity
from veen import captoken
from veen.crypto import SigningKey
from veen.digest import h
from veen.hub_identity import HubIdentity
from veen.label import DEFAULT_PROFILE, Profile, derive_label, routing_key, stream_id
from veen.msg import Msg
from veen.payload import Ciphertext
from veen.receipt import Receipt
from veen.wire import cbor
from veen.wire.api import SubmitRequest
from veen.wire.objects import WireObject

CBOR = "application/cbor"
NOON = 1_900_000_000
ROLLING = Profile(epoch_sec=60)

_SEQUENCER = """
import os, sys
from pathlib import Path
from hub.clock import HubClock
from hub.sequencer import service
from hub.settings import load
from hub.storage.datadir import DataDir

root, config, clock = map(Path, sys.argv[1:])
set_by_test = HubClock(0, wall=lambda: int(clock.read_text()))
sequencer = service.Sequencer(DataDir(root), load(config), os.urandom, set_by_test)
print("ready", flush=True)
sequencer.run()
"""


def key(name: str) -> SigningKey:
    return SigningKey(h(name.encode()))


@dataclass
class Hub:
    """The edge under test, and builders of what a client would send it."""

    settings: HubSettings
    datadir: DataDir
    clock: Path
    process: subprocess.Popen[str]
    http: FlaskClient

    @staticmethod
    def key(name: str) -> SigningKey:
        return key(name)

    @property
    def identity(self) -> HubIdentity:
        return read_identity(self.datadir)

    def set_clock(self, now: int) -> None:
        """Hub time from now on; it never goes back."""
        new = self.clock.with_suffix(".new")
        new.write_text(str(now))
        new.replace(self.clock)

    def label(self, stream: str, epoch: int = 0) -> bytes:
        return derive_label(routing_key(self.identity.hub_id), stream_id(stream), epoch)

    def post(self, path: str, body: WireObject | bytes, **headers: str) -> TestResponse:
        raw = body if isinstance(body, bytes) else body.encode()
        return self.http.post(path, data=raw, content_type=CBOR, headers=_named(headers))

    def post_json(self, path: str, body: Any, **headers: str) -> TestResponse:
        return self.http.post(path, json=body, headers=_named(headers))

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.http.get(path, headers=_named(headers))

    def authorize(self, token: captoken.CapToken) -> bytes:
        answer = self.post("/tooling/authorize", token)
        assert answer.status_code == 200, answer.data
        return token.auth_ref()

    def token(self, subject: SigningKey, *streams: str, **more: Any) -> captoken.CapToken:
        ids = [stream_id(name) for name in streams]
        given = {"ttl": 1_000_000, **more}
        return captoken.issue(key("issuer"), subject_pk=subject.public, stream_ids=ids, **given)

    def writer(self, name: str, stream: str, **more: Any) -> Writer:
        """A client with a capability for one stream."""
        auth_ref = self.authorize(self.token(key(name), stream, **more))
        return Writer(self, key(name), self.label(stream), auth_ref)


@dataclass(frozen=True)
class Writer:
    hub: Hub
    key: SigningKey
    label: bytes
    auth_ref: bytes | None

    def msg(self, seq: int, body: bytes = b"body", **changes: Any) -> Msg:
        ciphertext = changes.pop("ciphertext", Ciphertext(bytes(32), b"header", body).encode(0))
        plain = Msg(
            profile_id=DEFAULT_PROFILE.profile_id(),
            label=self.label,
            client_id=self.key.public,
            client_seq=seq,
            prev_ack=0,
            auth_ref=self.auth_ref,
            ct_hash=h(ciphertext),
            ciphertext=ciphertext,
        )
        return replace(plain, **changes).signed(self.key)

    def submit(self, msg: Msg | bytes) -> TestResponse:
        raw = msg if isinstance(msg, bytes) else msg.encode()
        return self.hub.post("/v1/submit", SubmitRequest(msg=raw))

    def write(self, first: int, last: int) -> list[Receipt]:
        answers = [self.submit(self.msg(seq)) for seq in range(first, last + 1)]
        assert {answer.status_code for answer in answers} == {200}
        return [Receipt.decode(cbor.encode(cbor.decode(answer.data)[2])) for answer in answers]


def config(**plain: str) -> str:
    """Bearer tokens are the names of the principals."""
    lines = [f'{name} = "{value}"' for name, value in plain.items()]
    lines += [f'issuers = ["{key("issuer").public.hex()}"]', "[limits]", "max_msg_bytes = 4096"]
    for stream, profile in (("record/a", 0), ("record/b", 0), ("export/x", 0), ("record/roll", 60)):
        lines += ["[[streams]]", f'name = "{stream}"', f"epoch_sec = {profile}"]
    lines += ["[[streams]]", 'name = "padded/a"', "pad_block = 64"]
    lines += ["[[streams]]", 'name = "bounded/a"', "max_msg_bytes = 700"]
    for name, role, read, write in (
        ("admin", "recorder_admin", ["*"], []),
        ("exporter", "bridge_online", ["export/*"], []),
        ("producer", "recorder_producer", [], ["record/a"]),
        ("asker", "query", ["record/a"], []),
    ):
        lines += ["[[principals]]", f'name = "{name}"', f'role = "{role}"']
        lines += [f"read = {json.dumps(read)}", f"write = {json.dumps(write)}"]
        lines += [f'token_sha256 = "{h(name.encode()).hex()}"']
        lines += [f'public_key = "{key(name).public.hex()}"']
    return "\n".join(lines)


@pytest.fixture(scope="module")
def start_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Hub]]:
    started: list[subprocess.Popen[str]] = []

    def start(**plain: str) -> Hub:
        root = tmp_path_factory.mktemp("hub")
        datadir, toml, clock = DataDir(root / "data"), root / "hub.toml", root / "clock"
        datadir.create()
        toml.write_text(config(**plain))
        clock.write_text(str(NOON))
        command = [sys.executable, "-c", _SEQUENCER, str(datadir.root), str(toml), str(clock)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        settings = load(toml)
        return Hub(settings, datadir, clock, process, create_app(settings, datadir).test_client())

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., Hub]) -> Hub:
    return start_hub()


def _named(headers: dict[str, str]) -> dict[str, str]:
    """Headers given by name, or ``as_=`` the principal whose bearer token is sent."""
    principal = headers.pop("as_", None)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {**named, "Authorization": f"Bearer {principal}"} if principal else named
