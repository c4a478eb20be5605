"""What the steps of the query suite share: a recorder with events, and a service that runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx

from cli.selftest.recorded import Recorded, an_event, record
from cli.selftest.service_under_test import ServiceUnderTest
from cli.selftest.step import Unexpected, expect
from cli.selftest.world import World, a_world
from cli.selftest.zone import Zone
from recorder import timestamp
from veen.digest import h
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.sign import PrivateKey

HTTP: Final = "record/app/http"
AUTH: Final = "record/app/auth"
HARMED: Final = "record/app/harmed"
SECRET: Final = "record/secret"  # noqa: S105 - the name of a stream
STREAMS: Final = {
    HTTP: ("http.request",),
    AUTH: ("auth.login",),
    HARMED: ("harm.done",),
    SECRET: ("secret.read",),
}
_COUNTS: Final = {HTTP: 40, AUTH: 12, HARMED: 6, SECRET: 2}
_PEOPLE: Final = {
    "asker": ("submitter", "record/app/*"),
    "other": ("submitter", "record/app/*"),
    "auditor": ("auditor", "record/app/*"),
    "clerk": ("submitter", "record/query/*"),
}
"""Who has a token at the service: the role of each, and its scope."""

_WAIT_SEC: Final = 60.0
_PAUSE_SEC: Final = 0.02


def identity_of(name: str) -> bytes:
    """The VEEN identity of somebody who asks."""
    return PrivateKey(h(f"query {name}".encode())).public


class QueryWorld:
    """The service starts with the first step that asks it, and serves those that follow."""

    def __init__(self, world: World, service: ServiceUnderTest, tokens: Mapping[str, str]) -> None:
        self.world = world
        self.service = service
        self.zone: Zone
        self.recorded: list[Recorded] = []
        self._tokens = tokens

    def begin(self, step: str) -> QueryWorld:
        self.world.begin(step)
        self.world.running()
        if not self.recorded:
            self._record()
        if not self.service.is_running():
            self._start()
        return self

    def ask(self, method: str, path: str, who: str = "asker", json: Any = None) -> httpx.Response:
        """One request, by somebody with a token; by nobody where the name is unknown."""
        token = self._tokens.get(who)
        return httpx.request(
            method, f"{self.service.url}/api/v1/query/{path}", json=json, trust_env=False,
            timeout=self.world.timeout_sec + _WAIT_SEC,
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )  # fmt: skip

    def answer(self, descriptor: dict[str, Any], who: str = "asker") -> httpx.Response:
        """What a query comes to in the end; one that is not fast is waited for."""
        reply = self.ask("POST", "submit", who, descriptor)
        if reply.status_code != httpx.codes.ACCEPTED:
            return reply
        result_id = reply.json()["result_id"]
        wait_until(lambda: self._has_ended(result_id, who), "a query that ends")
        return self.ask("GET", f"result/{result_id}", who)

    def submit(self, who: str = "asker", **changes: Any) -> dict[str, Any]:
        """The answer to a query that goes well."""
        reply = self.answer(a_query(**changes), who)
        expect(f"status of {reply.text[:200]}", reply.status_code, httpx.codes.OK)
        found: dict[str, Any] = reply.json()
        return found

    def package(self, result_id: str) -> bytes:
        """Its digest must be in the index first, which takes a moment."""

        def there() -> bytes | None:
            reply = self.ask("GET", f"proof/{result_id}")
            if reply.status_code == httpx.codes.TOO_EARLY:
                return None
            expect(f"status of {reply.text[:200]}", reply.status_code, httpx.codes.OK)
            return reply.content

        found: bytes = wait_until(there, "an evidence package")
        return found

    def checkpoint(self) -> RecorderCheckpoint:
        """A new one, once the service speaks up to it."""
        made = self.world.api().recorder_checkpoint(self.zone.settings.profile_id())

        def reached() -> bool:
            reply = httpx.get(f"{self.service.url}/readyz", trust_env=False)
            is_ready = reply.status_code == httpx.codes.OK
            return is_ready and reply.json()["checkpoint_id"] == made.checkpoint_id.hex()

        wait_until(reached, "an index that reaches the checkpoint")
        return made

    def of(self, *streams: str) -> list[Recorded]:
        """What the streams hold, in the order of rows."""
        mine = [one for one in self.recorded if one.stream in streams]
        return sorted(mine, key=lambda one: one.order)

    def _has_ended(self, result_id: str, who: str) -> bool:
        status = self.ask("GET", f"status/{result_id}", who).json()["status"]
        return status in ("completed", "failed")

    def _record(self) -> None:
        folder = self.world.root / "query-zone"
        more = self._query_settings()
        self.zone = Zone(self.world, folder, STREAMS, client="recorder", more=more)
        self.zone.register()
        chance = self.world.random
        self.recorded = record(
            self.zone,
            [
                an_event(chance, STREAMS[stream][0], number)
                for stream, count in _COUNTS.items()
                for number in range(count)
            ],
        )

    def _start(self) -> None:
        own = [one.name for one in self.zone.settings.streams.streams if one.name not in STREAMS]
        token = self.zone.token("recorder", [one for one in own if one.startswith("record/query/")])
        self.world.api().authorize(token)
        cap = self.zone.folder / "recorder.cap"
        cap.write_bytes(token.encode())
        self.service.start(self.zone.config, cap)
        self.checkpoint()

    def _query_settings(self) -> str:
        people = "".join(
            f'[[query.principals]]\nname = "{name}"\nroles = ["{role}"]\n'
            f'token_sha256 = "{h(self._tokens[name].encode()).hex()}"\n'
            f'public_key = "{identity_of(name).hex()}"\n'
            f'scopes = ["{scope}"]\n'
            for name, (role, scope) in _PEOPLE.items()
        )
        return (
            f'[index]\npath = "index"\n[query]\nlisten = "127.0.0.1:{self.service.port}"\n'
            f'engine = "inline"\nresults = "results"\nworkers = 1\n{people}'
        )


@contextmanager
def a_query_world(
    seed: int, count: int | None, timeout_sec: float, environment: Mapping[str, str]
) -> Iterator[QueryWorld]:
    with a_world(seed, count, timeout_sec, environment) as world:
        service = ServiceUnderTest(world.root, environment)
        tokens = {name: world.random.randbytes(16).hex() for name in _PEOPLE}
        try:
            yield QueryWorld(world, service, tokens)
        finally:
            service.end()


def a_query(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "scope": [HTTP, AUTH],
        "filter": {"subject_id": "user:2"},
        "projection": [
            "stream", "hub_commit_seq", "hub_commit_time", "event_time", "origin",
            "payload.number", "payload.nothing", "receipt_id",
        ],
        "evidence": {"mode": "none"},
    }  # fmt: skip
    return usual | changes


def row_of(one: Recorded) -> dict[str, Any]:
    """What the projection above has to make of an event."""
    return {
        "stream": one.stream,
        "hub_commit_seq": one.seq,
        "hub_commit_time": timestamp.render(one.hub_ts * 1_000),
        "event_time": timestamp.render(one.observed.event_time or 0),
        "origin": one.observed.origin,
        "payload.number": one.observed.payload["number"],
        "payload.nothing": None,
        "receipt_id": f"rcpt-{one.leaf.hex()}",
    }


def wait_until(there: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + _WAIT_SEC
    while not (found := there()):
        if time.monotonic() > deadline:
            raise Unexpected(f"expected {what} within {_WAIT_SEC:.0f} s")
        time.sleep(_PAUSE_SEC)
    return found
