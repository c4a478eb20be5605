"""The world of a self-test: a temporary directory, a hub, a query service, clients, randomness.

The hub and the service are processes on free ports, ended in any case (OS13.1). The hub is gated
and read by policy. A writer builds messages by hand, valid or not.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import httpx

from cli.selftest.probe import Probe, Reply
from cli.selftest.samples import Unexpected, expect
from hub.settings import HubSettings, load
from hub.storage.datadir import DataDir
from hub.supervisor import HubLaunch
from recorder.service.supervisor import ServiceLaunch
from veen import captoken
from veen.captoken import CapToken, Rate
from veen.client.client import Client
from veen.client.credentials import Bearer
from veen.client.hub_api import HubApi
from veen.client.transport import RetryPolicy, Transport
from veen.crypto import SigningKey, hpke_public_key
from veen.digest import h
from veen.errors import Failure
from veen.keystore.directory import ClientDir
from veen.label import DEFAULT_PROFILE, EpochLabels, Profile, routing_key, stream_id
from veen.limits import Limits
from veen.msg import Msg
from veen.payload import PayloadHdr, SealPlace, seal_payload
from veen.receipt import Receipt
from veen.system.child_process import end_with_parent
from veen.system.environment import Runtime
from veen.system.signals import signals_blocked, signals_unwind
from veen.wire.api import ErrorEnvelope
from zone.services import free_port

PEOPLE: Final = {
    "admin": ("recorder_admin", '["*"]', '["record/infrastructure/*"]'),
    "producer": ("recorder_producer", "[]", '["record/*"]'),
    "recorder": ("query", '["record/*"]', '["record/query/*"]'),
}
"""Clients that the hub knows by their keys: the role of each, what it reads and what it writes."""
_START_SEC: Final = 60.0
_STOP_SEC: Final = 60.0
_PAUSE_SEC: Final = 0.02
_SCHEMA: Final = h(b"veen.selftest.v1")
_KNOWN: Final = [
    (item.code.value, item.detail_enum) for item in (Failure.DUPLICATE, Failure.PREV_ACK)
]
"""How a message is refused that is in the log: it may also look back too far by now."""
LIMITS: Final = Limits(max_msg_bytes=65_536, max_body_bytes=32_768, max_epoch_skew_sec=2)
ROLLING: Final = Profile(epoch_sec=2)
ROLLING_STREAMS: Final = ("selftest/epoch-window", "selftest/epoch-roll")
_HOUR_SEC: Final = 3_600


def hub_settings_text(
    issuer: bytes,
    limits: Limits,
    tokens: tuple[str, str],
    people: Mapping[str, bytes],
    epochs: Mapping[str, int],
) -> str:
    """``tokens``: of a reader and of an unrelated principal; ``epochs``: epoch_sec by stream."""
    reader, unrelated = tokens
    return f"""
workers = 1
issuers = ["{issuer.hex()}"]

[limits]
max_msg_bytes = {limits.max_msg_bytes}
max_body_bytes = {limits.max_body_bytes}
max_epoch_skew_sec = {limits.max_epoch_skew_sec}

[[principals]]
name = "reader"
role = "recorder_admin"
token_sha256 = "{h(reader.encode()).hex()}"
read = ["*"]

[[principals]]
name = "unrelated"
role = "recorder_admin"
token_sha256 = "{h(unrelated.encode()).hex()}"
read = ["elsewhere/*"]

{"".join(_person(name, key) for name, key in people.items())}
{"".join(_stream(name, epoch_sec) for name, epoch_sec in epochs.items())}"""


def _person(name: str, key: bytes) -> str:
    role, read, write = PEOPLE[name]
    return f"""
[[principals]]
name = "{name}"
role = "{role}"
public_key = "{key.hex()}"
read = {read}
write = {write}
"""


def _stream(name: str, epoch_sec: int) -> str:
    return f"""
[[streams]]
name = "{name}"
epoch_sec = {epoch_sec}
"""


class ProcessUnderTest:
    """A child process; ``name`` is for errors, ``ready`` tells when it serves."""

    def __init__(self, name: str, log: Path, environment: Mapping[str, str], ready: str) -> None:
        self.log = log
        self.port = free_port()
        self._name = name
        self._ready = ready
        # A folder named like one of our packages in the working directory is not that package.
        self._environment = {**environment, "PYTHONSAFEPATH": "1"}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_running(self) -> bool:
        return self._process is not None and not _has_ended(self._process)

    def launch(self, command: Sequence[str]) -> None:
        """Start the process; on return it responds."""
        self.end()
        with self.log.open("ab") as log, signals_blocked():
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
                start_new_session=True, preexec_fn=end_with_parent,  # noqa: PLW1509 - one thread
            )  # fmt: skip
        self._wait_until_ready(self._process)

    def stop(self) -> None:
        """Stop the process as an operator would, with SIGTERM."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = time.monotonic() + _STOP_SEC
        while not _has_ended(self._process):
            if time.monotonic() > deadline:
                raise Unexpected(f"the {self._name} did not stop within {_STOP_SEC:.0f} s")
            time.sleep(_PAUSE_SEC)
        code = self._process.wait()
        self._process = None
        if code != 0:
            raise Unexpected(
                f"the {self._name} stopped with code {code}; its log: {self.last_line()}"
            )

    def end(self) -> None:
        """Kill the process group at once."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def last_line(self) -> str:
        return self.log.read_text(errors="replace").rstrip().rpartition("\n")[2]

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SEC
        with httpx.Client(timeout=5, trust_env=False, verify=False) as http:  # noqa: S501 - no TLS
            while not _is_ready(http, self.url + self._ready):
                if _has_ended(process) or time.monotonic() > deadline:
                    self.end()
                    raise Unexpected(
                        f"the {self._name} does not start; its log: {self.last_line()}"
                    )
                time.sleep(_PAUSE_SEC)


def _is_ready(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(url).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has exited, without reaping it: until then its pid is not reused."""
    waiting = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, waiting) is not None


class HubUnderTest(ProcessUnderTest):
    """A data directory with its settings; a hub runs on it from ``start`` to ``stop``."""

    def __init__(self, root: Path, settings: str, environment: Mapping[str, str]) -> None:
        super().__init__("hub", root / "hub.log", environment, "/readyz")
        self.datadir = DataDir(root / "hub")
        self._config = root / "hub.toml"
        self._config.write_text(settings)

    @property
    def settings(self) -> HubSettings:
        return load(self._config)

    def start(self) -> None:
        """Start the hub; on return it accepts messages."""
        options = {"listen": f"127.0.0.1:{self.port}"}
        self.launch(HubLaunch(self.datadir, self._config, options).command("hub"))


class ServiceUnderTest(ProcessUnderTest):
    """A query service; its settings, with its port, are written before it starts."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__("query service", folder / "service.log", environment, "/healthz")

    def start(self, config: Path, *caps: Path) -> None:
        self.launch(ServiceLaunch(config, caps=caps).command("recorder.service.supervisor"))


@dataclass(slots=True)
class SampleWriter:
    """A writer; ``client_seq`` and ``prev_ack`` are those of its next message."""

    key: SigningKey
    labels: EpochLabels
    auth_ref: bytes | None
    probe: Probe
    random: Callable[[int], bytes]
    limits: Limits
    client_seq: int = 1
    prev_ack: int = 0
    epoch: int = 0

    def msg(self, body: bytes = b"self-test", **changes: Any) -> Msg:
        """The next message, sealed and signed; ``changes`` are applied before signing."""
        place = SealPlace(
            profile=self.labels.profile,
            label=self.labels.at(self.epoch),
            client_id=self.key.public,
            client_seq=self.client_seq,
            prev_ack=self.prev_ack,
            auth_ref=self.auth_ref,
        )
        sealed = seal_payload(
            recipient=hpke_public_key(self.random(32)),
            ephemeral=self.random(32),
            place=place,
            header=PayloadHdr(schema=_SCHEMA),
            body=body,
            limits=Limits(),
        )
        return self.around(sealed.ciphertext, **changes)

    def around(self, ciphertext: bytes, **changes: Any) -> Msg:
        """The next message with any ciphertext."""
        plain = Msg(
            profile_id=self.labels.profile.profile_id(),
            label=self.labels.at(self.epoch),
            client_id=self.key.public,
            client_seq=self.client_seq,
            prev_ack=self.prev_ack,
            auth_ref=self.auth_ref,
            ct_hash=h(ciphertext),
            ciphertext=ciphertext,
        )
        return replace(plain, **changes).signed(self.key)

    def submit(self, msg: Msg) -> Reply:
        return self.probe.submit(msg.encode())

    def accepted(self, msg: Msg | None = None) -> Receipt:
        """Send a valid message, which the hub must accept with the next number."""
        receipt = self.submit(msg or self.msg()).receipt()
        expect("stream_seq of the next message", receipt.stream_seq, self.prev_ack + 1)
        self.client_seq += 1
        self.prev_ack = receipt.stream_seq
        return receipt

    def refused(self, failure: Failure, msg: Msg) -> ErrorEnvelope:
        """Send an invalid message, which the hub must refuse without a trace."""
        return self.submit(msg).refused_with(failure)

    def known(self, msg: Msg, receipt: Receipt) -> None:
        """Send an earlier message again; the hub must return its stream_seq and receipt."""
        envelope = self.submit(msg).refusal()
        detail = envelope.detail or {}
        text = (envelope.code, detail.get("detail_enum"))
        if text not in _KNOWN:
            raise Unexpected(f"a message sent again: expected one of {_KNOWN}, got {text}")
        expect("where it is", detail.get("stream_seq"), receipt.stream_seq)
        expect("its receipt", detail.get("receipt"), receipt.encode())


@dataclass(slots=True)
class World:
    """The world of a suite; ``begin`` reseeds the random numbers by seed and name of a step.

    ``count`` is the number of cases per step, if given.
    """

    root: Path
    hub: HubUnderTest
    seed: int
    count: int | None
    timeout_sec: float
    issuer: SigningKey
    reader_token: str
    unrelated_token: str
    people: Mapping[str, bytes]
    step: str = ""
    random: random.Random = field(default_factory=random.Random)
    _of_step: ExitStack = field(default_factory=ExitStack)
    _probe: Probe | None = None
    _hub_id: bytes = b""
    _has_hub: bool = False

    def begin(self, step: str) -> World:
        self.leave()
        self.step = step
        self._has_hub = False
        self.random = _chance(self.seed, step)
        return self

    def leave(self) -> None:
        """Close the resources of the last step."""
        self._of_step.close()
        self._probe = None

    @property
    def stream(self) -> str:
        """The stream of the current step."""
        return f"selftest/{self.step}"

    @property
    def probe(self) -> Probe:
        """A probe for raw requests to the hub, which is started if needed."""
        self.running()
        if self._probe is None:
            probe = Probe(self.hub.url, self.reader_token, self.timeout_sec)
            self._probe = self._of_step.enter_context(probe)
        return self._probe

    @property
    def hub_id(self) -> bytes:
        if not self._hub_id:
            self._hub_id = self.api().status().identity().hub_id
        return self._hub_id

    def running(self) -> None:
        """Start the hub at the beginning of a step; a hub that exits during a step is an error."""
        if not self.hub.is_running():
            if self._has_hub:
                raise Unexpected(f"the hub has ended by itself; its log: {self.hub.last_line()}")
            self.hub.start()
        self._has_hub = True

    def api(self) -> HubApi:
        """Typed requests with the token of a reader, without retry."""
        self.running()
        transport = Transport(
            self.hub.url,
            runtime=self.runtime(),
            credentials=Bearer(self.reader_token),
            retry_policy=RetryPolicy(attempts=1, timeout_sec=self.timeout_sec),
        )
        self._of_step.callback(transport.close)
        return HubApi(transport)

    def cases(self, usual: int) -> range:
        """The number of cases, as given or by default."""
        return range(self.count or usual)

    def key(self) -> SigningKey:
        return SigningKey(self.random.randbytes(32))

    def labels(self, stream: str | None = None, profile: Profile = DEFAULT_PROFILE) -> EpochLabels:
        return EpochLabels(routing_key(self.hub_id), stream_id(stream or self.stream), profile)

    def token(
        self,
        subject: bytes,
        *,
        stream: str | None = None,
        ttl: int = _HOUR_SEC,
        rate: Rate | None = None,
    ) -> CapToken:
        """A capability of the trusted issuer, not yet authorized at the hub."""
        named = stream_id(stream or self.stream)
        return captoken.issue(
            self.issuer, subject_pk=subject, stream_ids=[named], ttl=ttl, rate=rate
        )

    def capability(self, subject: bytes, *, rate: Rate | None = None) -> CapToken:
        """A capability that is authorized at the hub."""
        token = self.token(subject, rate=rate)
        self.api().authorize(token)
        return token

    def unauthorized_writer(self, profile: Profile = DEFAULT_PROFILE) -> SampleWriter:
        """A writer without a capability."""
        return SampleWriter(
            key=self.key(),
            labels=self.labels(profile=profile),
            auth_ref=None,
            probe=self.probe,
            random=self.random.randbytes,
            limits=LIMITS,
        )

    def writer(self, profile: Profile = DEFAULT_PROFILE) -> SampleWriter:
        """A writer with a capability for the stream of the step."""
        sample_writer = self.unauthorized_writer(profile)
        sample_writer.auth_ref = self.capability(sample_writer.key.public).auth_ref()
        return sample_writer

    def client_dir(self, name: str = "client") -> ClientDir:
        """The directory of a client of the step, with an identity that is created once."""
        dir_ = ClientDir(self.root / f"{self.step}-{name}")
        if not dir_.keystore.exists():
            dir_.create(now=int(time.time()), random=self.random.randbytes, passphrase=None)
        return dir_

    @contextmanager
    def client(self, name: str = "client") -> Iterator[Client]:
        """The real client, with the hub pinned from its directory."""
        self.running()
        with Client.open(
            self.client_dir(name).root,
            str(self.hub.datadir.root),
            credentials=Bearer(self.reader_token),
            retry_policy=RetryPolicy(timeout_sec=self.timeout_sec),
            runtime=self.runtime(),
        ) as client:
            yield client

    def runtime(self) -> Runtime:
        return Runtime(
            clock=lambda: int(time.time()), random=self.random.randbytes, sleep=time.sleep
        )


@contextmanager
def a_world(
    seed: int, count: int | None, timeout_sec: float, environment: Mapping[str, str]
) -> Iterator[World]:
    """A world under TMPDIR; its processes and its directory are always removed."""
    with signals_unwind(), tempfile.TemporaryDirectory(prefix="veen-selftest-") as folder:
        chance, root = _chance(seed, "world"), Path(folder)
        issuer = SigningKey(chance.randbytes(32))
        tokens = (chance.randbytes(16).hex(), chance.randbytes(16).hex())
        people = {name: _identity(root / name, chance) for name in PEOPLE}
        streams = dict.fromkeys(ROLLING_STREAMS, ROLLING.epoch_sec)
        settings = hub_settings_text(issuer.public, LIMITS, tokens, people, streams)
        hub = HubUnderTest(root, settings, environment)
        world = World(root, hub, seed, count, timeout_sec, issuer, *tokens, people)
        try:
            yield world
        finally:
            hub.end()
            world.leave()


def _identity(directory: Path, chance: random.Random) -> bytes:
    made = ClientDir(directory).create(
        now=int(time.time()), random=chance.randbytes, passphrase=None
    )
    return made.client_id


def _chance(seed: int, name: str) -> random.Random:
    """Deterministic random numbers: the keys live only as long as the directory."""
    return random.Random(f"{seed}/{name}")  # noqa: S311
