"""A whole zone for the tests of the Query API: a hub, producers, and the service's processes."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]

from recorder.emit.emitter import Emitter, Observation
from recorder.settings import RecorderSettings, load
from veen.client.client import Client
from veen.client.credentials import Bearer, Principal
from veen.client.hub_api import HubApi
from veen.client.transport import Transport
from veen.crypto import SigningKey
from veen.keystore.directory import ClientDir
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system.environment import Runtime
from zone.services import free_port

ADMIN = "the admin's token"
TOKENS = {name: f"the token of {name}" for name in ("alice", "bob", "auditor")}
SIGNER = SigningKey(sha256(b"signer").digest())
STREAMS = {"record/app/http": "http.request", "record/app/auth": "auth.login",
           "record/secret": "secret.read"}  # fmt: skip
OWN = (
    "record/query/requests", "record/query/results", "record/query/audit/access",
    "record/query/replays", "record/infrastructure/changes",
)  # fmt: skip
START = 1_763_500_000_000
WAIT_SEC = 30.0


def digest_of(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def identity_of(name: str) -> bytes:
    """The VEEN identity of a principal that has a token."""
    return SigningKey(sha256(f"identity of {name}".encode()).digest()).public


def hub_toml() -> str:
    streams = "".join(f'[[streams]]\nname = "{item}"\n' for item in (*STREAMS, *OWN))
    return (
        'admission = "open"\nreads = "open"\n' + streams + '[[principals]]\nname = "admin"\n'
        f'role = "recorder_admin"\ntoken_sha256 = "{digest_of(ADMIN)}"\nread = ["*"]\n'
    )


def recorder_toml(hub_url: str, hub_id: str, port: int, **more: Any) -> str:
    usual = {"row_budget": 100_000, "max_page": 500, "max_descriptor_bytes": 300_000}
    given = {**usual, "workers": 2, **more}
    query = "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in given.items())
    streams = "".join(
        f'[[streams]]\nname = "{name}"\nevent_types = ["{kind}"]\n'
        for name, kind in STREAMS.items()
    )
    people = "".join(
        f'[[query.principals]]\nname = "{name}"\nsubject_id = "user:{name}"\n'
        f'token_sha256 = "{digest_of(token)}"\nscopes = ["record/app/*"]\n'
        f'public_key = "{identity_of(name).hex()}"\n'
        f'roles = ["{"auditor" if name == "auditor" else "submitter"}"]\n'
        for name, token in TOKENS.items()
    )
    return (
        f'zone = "z1"\n[hub]\nurl = "{hub_url}"\nhub_id = "{hub_id}"\nclient = "service"\n'
        f'{streams}[index]\npath = "index"\n[query]\nlisten = "127.0.0.1:{port}"\n'
        f'engine = "inline"\nresults = "results"\n{query}{people}'
        f'[[query.principals]]\nname = "signer"\npublic_key = "{SIGNER.public.hex()}"\n'
        'scopes = ["record/app/*", "record/query/*"]\n'
    )


def wait_until(happened: Callable[[], Any], what: str, seconds: float = WAIT_SEC) -> Any:
    deadline = time.monotonic() + seconds
    while not (result := happened()):
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.01)
    return result


def around() -> Runtime:
    return Runtime(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)


class Zone:
    """One hub that runs, and one service that is started when a test wants it."""

    def __init__(self, folder: Path, hub: Any, **more: Any) -> None:
        self.folder = folder
        self.hub = hub
        self.port = free_port()
        self.config = folder / "recorder.toml"
        self.log = folder / "service.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.scheme = "http"
        self.tls: ssl.SSLContext | bool = False
        self._seen: list[psutil.Process] = []
        folder.mkdir(exist_ok=True)
        self._transport = Transport(hub.url, runtime=around(), credentials=Bearer(ADMIN))
        self.admin = HubApi(self._transport)
        self.hub_id = self.admin.status().hub_id
        self.make_client("clerk")
        clerk = ClientDir(folder / "clerk").open(None).client_id.hex()
        person = f'[[query.principals]]\nname = "clerk"\npublic_key = "{clerk}"\n'
        settings = recorder_toml(hub.url, self.hub_id.hex(), self.port, **more)
        self.config.write_text(f'{settings}{person}scopes = ["record/app/*"]\n')
        now = int(time.time())
        if not (folder / "service").exists():
            self.make_client("service")
        self.reader = ClientDir(folder / "service").open(None)
        self.producer = self._client("producer")
        self._emitter = Emitter(
            self.producer,
            self.settings.streams,
            clock=lambda: START,
            recipient=self.reader.card.recipient(now),
        )

    @property
    def settings(self) -> RecorderSettings:
        return load(self.config)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def make_client(self, name: str) -> None:
        ClientDir(self.folder / name).create(
            now=int(time.time()), random=os.urandom, passphrase=None
        )

    def _client(self, name: str) -> Client:
        self.make_client(name)
        return Client.open(self.folder / name, self.hub.url, hub_id=self.hub_id)

    def emit(self, event_type: str, count: int, first: int = 0) -> None:
        list(
            self._emitter.send_many(
                an_event(event_type, item) for item in range(first, first + count)
            )
        )

    def checkpoint(self) -> RecorderCheckpoint:
        return self.admin.recorder_checkpoint(self.settings.profile_id())

    def start(self, *words: str) -> Zone:
        self.launch(*words)
        wait_until(self.answers, "a service that answers")
        self.processes()
        return self

    def launch(self, *words: str) -> None:
        """By its module, or by the words of a command, which take longer to load."""
        module = ["cli.main", *words] if words else ["recorder.service.supervisor"]
        command = [sys.executable, "-m", *module, "--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-3_000:]
        try:
            return self._get("/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    def catch_up(self, checkpoint: RecorderCheckpoint) -> None:
        """Until the service speaks up to a checkpoint."""

        def reached() -> bool:
            reply = self._get("/readyz")
            expected = checkpoint.checkpoint_id.hex()
            return reply.status_code == 200 and reply.json()["checkpoint_id"] == expected

        wait_until(reached, "an index at the checkpoint")

    def _get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, trust_env=False, verify=self.tls)

    def processes(self) -> list[psutil.Process]:
        assert self.process is not None
        first = psutil.Process(self.process.pid)
        self._seen = [first, *first.children(recursive=True)]
        return self._seen

    def runner(self) -> psutil.Process:
        children = self.processes()[0].children()
        return next(child for child in children if "recorder.service" in child.cmdline())

    def workers(self) -> list[psutil.Process]:
        """Of gunicorn, which names its processes itself."""
        runner = self.runner()
        (web,) = [child for child in self.processes()[0].children() if child != runner]
        result: list[psutil.Process] = web.children()
        return result

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.processes()
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(40)
        self.process = None

    def kill(self) -> None:
        """All processes of the service at once, as a power cut would."""
        for process in self.processes():
            process.kill()
        assert self.process is not None
        self.process.wait(20)
        self.process = None

    def destroy(self) -> None:
        self.producer.close()
        self._transport.close()
        if self.process is not None and self.process.poll() is None:
            self.processes()
            self.process.kill()
            self.process.wait(20)
        for item in self._seen:
            if item.is_running():
                item.kill()

    def signed(self, method: str, path: str, body: bytes = b"", **more: Any) -> httpx.Response:
        """A request signed by the principal that has a key."""
        headers = self.signature(method, path, body)
        return httpx.request(
            method, self.url + path, content=body, trust_env=False, timeout=30,
            headers={**headers, "Content-Type": "application/json", **more},
        )  # fmt: skip

    def signature(self, method: str, path: str, body: bytes) -> dict[str, str]:
        signer = Principal("signer", SIGNER, lambda: int(time.time()), os.urandom)
        return signer.headers(method, self.url + path, body)

    def as_(self, name: str | None) -> httpx.Client:
        """An HTTP client that is somebody, or nobody."""
        headers = {"Authorization": f"Bearer {TOKENS.get(name, name)}"} if name else {}
        return httpx.Client(base_url=self.url, headers=headers, trust_env=False, timeout=30)


def an_event(event_type: str, number: int) -> Observation:
    return Observation(
        event_type=event_type,
        subject_id=f"user:{number % 7}",
        origin=f"gateway-{number % 3}",
        payload={"number": number, "path": f"/p/{number % 5}", "ok": number % 4 != 0},
        event_time=START + 1000 * number,
    )


def a_query(**changes: Any) -> dict[str, Any]:
    """A valid descriptor; a test names only what it changes, and None takes a key away."""
    usual: dict[str, Any] = {
        "scope": ["record/app/http"],
        "filter": {},
        "projection": ["subject_id", "event_time", "payload.number", "receipt_id"],
        "evidence": {"mode": "none"},
    }
    return {key: value for key, value in (usual | changes).items() if value is not None}


@contextmanager
def closing(zone: Zone) -> Iterator[Zone]:
    try:
        yield zone
    finally:
        zone.destroy()
