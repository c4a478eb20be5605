"""What the steps of a self-test share: a directory that will be gone, a hub, clients, chance."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cli.selftest import hub_settings
from cli.selftest.hub_under_test import HubUnderTest
from cli.selftest.interruption import unwinding
from cli.selftest.probe import Probe
from cli.selftest.step import Unexpected
from cli.selftest.writer import Writer
from veen import captoken
from veen.captoken import CapToken
from veen.client.client import Client
from veen.client.credentials import Bearer
from veen.client.hub_api import HubApi
from veen.client.surroundings import Surroundings
from veen.client.transport import Patience, Transport
from veen.keystore.directory import ClientDir
from veen.label import EpochLabels, routing_key
from veen.limits import Limits
from veen.profile import DEFAULT_PROFILE, Profile
from veen.rate import Rate
from veen.sign import PrivateKey
from veen.stream import stream_id

LIMITS: Final = Limits(max_msg_bytes=65_536, max_body_bytes=32_768, max_epoch_skew_sec=2)
ROLLING: Final = Profile(epoch_sec=2)
ROLLING_STREAMS: Final = ("selftest/epoch-window", "selftest/epoch-roll")
_HOUR_SEC: Final = 3_600


@dataclass(slots=True)
class World:
    """``begin`` is called before each step: chance starts again there, by seed and name.

    ``count`` is how many cases a step of many is to try, where that was said.
    """

    root: Path
    hub: HubUnderTest
    seed: int
    count: int | None
    timeout_sec: float
    issuer: PrivateKey
    reader_token: str
    stranger_token: str
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
        """Close what the last step has open."""
        self._of_step.close()
        self._probe = None

    @property
    def stream(self) -> str:
        """A stream of the step's own."""
        return f"selftest/{self.step}"

    @property
    def probe(self) -> Probe:
        """Raw requests to the hub, which is started where it does not run."""
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
        """A hub at the beginning of a step; one that ends in the middle is not replaced."""
        if not self.hub.is_running():
            if self._has_hub:
                raise Unexpected(f"the hub has ended by itself; its log: {self.hub.last_line()}")
            self.hub.start()
        self._has_hub = True

    def api(self) -> HubApi:
        """Typed requests with a reader's token; each is made once."""
        self.running()
        transport = Transport(
            self.hub.url,
            surroundings=self.surroundings(),
            credentials=Bearer(self.reader_token),
            patience=Patience(attempts=1, timeout_sec=self.timeout_sec),
        )
        self._of_step.callback(transport.close)
        return HubApi(transport)

    def cases(self, usual: int) -> range:
        """As many cases as were asked for, or as many as are usual."""
        return range(self.count or usual)

    def key(self) -> PrivateKey:
        return PrivateKey(self.random.randbytes(32))

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
        """A capability by the issuer that the hub trusts; the hub does not know it yet."""
        named = stream_id(stream or self.stream)
        return captoken.issue(
            self.issuer, subject_pk=subject, stream_ids=[named], ttl=ttl, rate=rate
        )

    def capability(self, subject: bytes, *, rate: Rate | None = None) -> CapToken:
        """The same, made known to the hub."""
        token = self.token(subject, rate=rate)
        self.api().authorize(token)
        return token

    def stranger(self, profile: Profile = DEFAULT_PROFILE) -> Writer:
        """A writer without a capability."""
        return Writer(
            key=self.key(),
            labels=self.labels(profile=profile),
            auth_ref=None,
            probe=self.probe,
            random=self.random.randbytes,
            limits=LIMITS,
        )

    def writer(self, profile: Profile = DEFAULT_PROFILE) -> Writer:
        """A writer with a capability for the step's stream."""
        found = self.stranger(profile)
        found.auth_ref = self.capability(found.key.public).auth_ref()
        return found

    def client_dir(self, name: str = "client") -> ClientDir:
        """The directory of a client of the step's own; an identity is made at the first time."""
        found = ClientDir(self.root / f"{self.step}-{name}")
        if not found.keystore.exists():
            found.create(now=int(time.time()), random=self.random.randbytes, passphrase=None)
        return found

    @contextmanager
    def client(self, name: str = "client") -> Iterator[Client]:
        """The real client, at a hub that it knows from the directory."""
        self.running()
        with Client.open(
            self.client_dir(name).root,
            str(self.hub.datadir.root),
            credentials=Bearer(self.reader_token),
            patience=Patience(timeout_sec=self.timeout_sec),
            surroundings=self.surroundings(),
        ) as client:
            yield client

    def surroundings(self) -> Surroundings:
        return Surroundings(
            clock=lambda: int(time.time()), random=self.random.randbytes, sleep=time.sleep
        )


@contextmanager
def a_world(
    seed: int, count: int | None, timeout_sec: float, environment: Mapping[str, str]
) -> Iterator[World]:
    """A world under TMPDIR; whatever happens, its processes and its directory are gone after."""
    with unwinding(), tempfile.TemporaryDirectory(prefix="veen-selftest-") as folder:
        chance, root = _chance(seed, "world"), Path(folder)
        issuer = PrivateKey(chance.randbytes(32))
        tokens = (chance.randbytes(16).hex(), chance.randbytes(16).hex())
        people = {name: _identity(root / name, chance) for name in hub_settings.PEOPLE}
        streams = dict.fromkeys(ROLLING_STREAMS, ROLLING.epoch_sec)
        settings = hub_settings.text(issuer.public, LIMITS, tokens, people, streams)
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
    """Repeatable on purpose: its keys live as long as the directory."""
    return random.Random(f"{seed}/{name}")  # noqa: S311
