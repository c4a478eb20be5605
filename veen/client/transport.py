"""One hub over HTTP: connections kept, requests repeated with back-off, answers bounded."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final, TypeVar

import httpx

from veen.client.credentials import Anonymous, Credentials
from veen.client.errors import HubRefused, Unreachable, refusal
from veen.client.surroundings import Surroundings
from veen.envelope import ErrorEnvelope
from veen.errors import Malformed, Rejected
from veen.version import VERSION
from veen.wire import WireObject

W = TypeVar("W", bound=WireObject)

CBOR: Final = "application/cbor"
MAX_ANSWER_BYTES: Final = 67_108_864
MAX_WAIT_SEC: Final = 60
_MAX_DOUBLINGS: Final = 16
_TRY_AGAIN: Final = {502, 503, 504}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often a request is repeated, and how long to wait in between."""

    attempts: int = 5
    first_sec: float = 0.1
    most_sec: float = 5.0
    timeout_sec: float = 10.0

    def pause(self, attempt: int, retry_after: int | None, fraction: float) -> float:
        """Full jitter under a doubling bound; never before the hub wants to be asked again."""
        bound = min(self.most_sec, self.first_sec * float(1 << min(attempt, _MAX_DOUBLINGS)))
        return fraction * bound + (retry_after or 0)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    retry_after: int | None
    body: bytes = field(repr=False)

    @property
    def is_ok(self) -> bool:
        return self.status == httpx.codes.OK

    def error(self) -> Rejected | HubRefused:
        return refusal(ErrorEnvelope.decode(self.body))


class Transport:
    """Safe to share between threads; ``close`` ends its connections."""

    def __init__(
        self,
        url: str,
        *,
        surroundings: Surroundings,
        credentials: Credentials | None = None,
        patience: Patience | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.patience = patience or Patience()
        self._surroundings = surroundings
        self._credentials = credentials or Anonymous()
        self._http = httpx.Client(
            timeout=self.patience.timeout_sec,
            headers={
                "Accept": CBOR,
                "Accept-Encoding": "identity",
                "User-Agent": f"veen/{VERSION}",
            },
            verify=tls if tls is not None else True,
            follow_redirects=False,
            trust_env=False,
        )

    def close(self) -> None:
        self._http.close()

    def post(self, path: str, message: WireObject, wanted: type[W]) -> W:
        return self._ask("POST", path, message.encode(), wanted)

    def get(self, path: str, wanted: type[W]) -> W:
        return self._ask("GET", path, b"", wanted)

    def pause(self, attempt: int, retry_after: int | None) -> None:
        wait = self.patience.pause(attempt, retry_after, self._surroundings.fraction())
        self._surroundings.sleep(wait)

    def _ask(self, method: str, path: str, body: bytes, wanted: type[W]) -> W:
        """Repeated while nothing came, or what came is no answer; a refusal is an answer."""
        for attempt in range(self.patience.attempts - 1):
            try:
                return self._once(method, path, body, wanted)
            except (Unreachable, Malformed):
                self.pause(attempt, None)
            except _Busy as busy:
                self.pause(attempt, busy.answer.retry_after)
        try:
            return self._once(method, path, body, wanted)
        except _Busy as busy:
            raise self._error(busy.answer) from None

    def _once(self, method: str, path: str, body: bytes, wanted: type[W]) -> W:
        answer = self._send(method, path, body)
        if answer.is_ok:
            return wanted.decode(answer.body)
        if answer.status in _TRY_AGAIN:
            raise _Busy(answer)
        raise self._error(answer)

    def _error(self, answer: Answer) -> Rejected | HubRefused | Unreachable:
        try:
            return answer.error()
        except Malformed:
            return Unreachable(f"{self.url} answered {answer.status} without saying why")

    def _send(self, method: str, path: str, body: bytes) -> Answer:
        url = f"{self.url}{path}"
        headers = self._credentials.headers(method, url, body)
        if body:
            headers["Content-Type"] = CBOR
        try:
            with self._http.stream(method, url, content=body, headers=headers) as reply:
                return Answer(reply.status_code, _retry_after(reply), _bounded(reply))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(
                f"{self.url} does not answer: {str(error) or type(error).__name__}"
            ) from error


class _Busy(Exception):
    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def _bounded(reply: httpx.Response) -> bytes:
    parts, left = [], MAX_ANSWER_BYTES
    for part in reply.iter_raw():
        left -= len(part)
        if left < 0:
            raise Malformed(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _retry_after(reply: httpx.Response) -> int | None:
    """Whole seconds, as hubs say it; anything else is no advice, and a year is too much."""
    text = reply.headers.get("Retry-After", "")
    return min(int(text), MAX_WAIT_SEC) if text.isdecimal() and text.isascii() else None
