"""HTTP transport to a hub: pooled connections, retries with backoff, bounded responses.

``resolve_address`` finds a hub by its URL or its data directory on this host. ``tls_info`` shows
how a connection is protected (SH0). Errors about a message are ``veen.errors.Rejected``; the others
are here.
"""

from __future__ import annotations

import shlex
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import httpx

from veen.client.credentials import Anonymous, Credentials
from veen.errors import Code, Failure, Malformed, Rejected, Untrusted, VeenError
from veen.hub_identity import HubIdentity
from veen.log import layout
from veen.system.environment import Runtime
from veen.version import VERSION
from veen.wire.api import ErrorEnvelope
from veen.wire.objects import WireObject

_FAILURES = {(item.code.value, item.detail_enum): item for item in Failure}
_URL_FILE = "run/hub.url"
_PORT: Final = 443
_AEAD: Final = ("GCM", "CHACHA20", "CCM")
ResponseT = TypeVar("ResponseT", bound=WireObject)
CBOR: Final = "application/cbor"
MAX_ANSWER_BYTES: Final = 67_108_864
MAX_WAIT_SEC: Final = 60
_MAX_DOUBLINGS: Final = 16
_TRY_AGAIN: Final = {502, 503, 504}


class Unreachable(VeenError):
    """A hub that did not answer, or whose response is invalid."""


class HubRefused(VeenError):
    """A request that the hub refused, with its code."""

    def __init__(
        self, code: str, message: str, detail: dict[str, Any], retry_after: int | None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.detail = detail
        self.retry_after = retry_after

    @property
    def is_about_access(self) -> bool:
        return self.code in (Code.UNAUTHORIZED.value, Code.FORBIDDEN.value)


class StateLost(VeenError):
    """The log has entries that this client does not know: its directory is a copy, or older."""


class Fork(Untrusted):
    """A hub signed two histories; ``evidence`` is the file with the two receipts."""

    def __init__(self, message: str, evidence: Path) -> None:
        super().__init__(f"{message}; the evidence is in {evidence}")
        self.evidence = evidence


def refusal(envelope: ErrorEnvelope) -> Rejected | HubRefused:
    """The error of an envelope: Rejected if it names a row of the admission table."""
    detail = envelope.detail or {}
    failure = _FAILURES.get((envelope.code, str(detail.get("detail_enum"))))
    if failure is None:
        return HubRefused(envelope.code, envelope.message, detail, envelope.retry_after)
    return Rejected(
        failure,
        envelope.message,
        stream_seq=_if_type(int, detail.get("stream_seq")),
        retry_after=envelope.retry_after,
        receipt=_if_type(bytes, detail.get("receipt")),
    )


def _if_type(expected: type, value: Any) -> Any:
    return value if type(value) is expected else None


@dataclass(frozen=True, slots=True)
class HubAddress:
    """The URL of a hub; ``identity`` is that of its data directory, if known, and is the pin."""

    url: str
    identity: HubIdentity | None


def resolve_address(hub: str) -> HubAddress:
    """The address of ``--hub``: http(s)://…, a path, or file://…."""
    parts = urlsplit(hub)
    if parts.scheme in ("http", "https"):
        if not parts.hostname or parts.username or parts.query or parts.fragment:
            raise Malformed(f"{hub!r}: expected the address of a hub, like http://127.0.0.1:8080")
        return HubAddress(hub.rstrip("/"), None)
    if parts.scheme not in ("", "file"):
        raise Malformed(f"{hub!r}: expected the http(s) address of a hub or its data directory")
    return _on_this_host(Path(unquote(parts.path) if parts.scheme else hub))


def _on_this_host(root: Path) -> HubAddress:
    if not root.is_dir():
        raise Unreachable(
            f"there is no data directory {root}: --hub takes one, or an address like "
            "http://127.0.0.1:8080"
        )
    try:
        url = (root / _URL_FILE).read_text().strip(" \t\r\n")
    except FileNotFoundError:
        raise Unreachable(
            f"no hub runs on {root}; start one with: veen hub start --data-dir "
            f"{shlex.quote(str(root))}"
        ) from None
    identity = HubIdentity.decode((root / layout.IDENTITY).read_bytes())
    identity.verify((root / layout.IDENTITY_SIG).read_bytes())
    return HubAddress(url, identity)


class NoTls(VeenError):
    """An address without TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsInfo:
    version: str
    cipher: str
    compression: str | None
    subject: str
    issuer: str
    not_after: int

    @property
    def is_aead(self) -> bool:
        return any(name in self.cipher for name in _AEAD)


def tls_info(url: str, tls: ssl.SSLContext | None, timeout_sec: float) -> TlsInfo:
    """Do a TLS handshake and report what was negotiated."""
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.hostname is None:
        raise NoTls(f"{url} has no TLS: requests can be read in transit")
    context = tls or ssl.create_default_context()
    address = (parts.hostname, parts.port or _PORT)
    try:
        with (
            socket.create_connection(address, timeout=timeout_sec) as connection,
            context.wrap_socket(connection, server_hostname=parts.hostname) as secured,
        ):
            return _connection_info(secured)
    except OSError as error:
        raise Unreachable(f"{url} does not answer: {error}") from error


def _connection_info(secured: ssl.SSLSocket) -> TlsInfo:
    certificate: dict[str, Any] = secured.getpeercert() or {}
    name, _, _ = secured.cipher() or ("none", "", 0)
    return TlsInfo(
        version=secured.version() or "none",
        cipher=name,
        compression=secured.compression(),
        subject=_name(certificate["subject"]),
        issuer=_name(certificate["issuer"]),
        not_after=int(ssl.cert_time_to_seconds(certificate["notAfter"])),
    )


def _name(parts: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    return ", ".join(f"{key}={value}" for part in parts for key, value in part)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts, and the exponential backoff between them."""

    attempts: int = 5
    first_sec: float = 0.1
    most_sec: float = 5.0
    timeout_sec: float = 10.0

    def pause(self, attempt: int, retry_after: int | None, fraction: float) -> float:
        """Exponential backoff with full jitter, plus the Retry-After of the hub."""
        bound = min(self.most_sec, self.first_sec * float(1 << min(attempt, _MAX_DOUBLINGS)))
        return fraction * bound + (retry_after or 0)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    retry_after: int | None
    body: bytes = field(repr=False)

    def error(self) -> Rejected | HubRefused:
        return refusal(ErrorEnvelope.decode(self.body))


class Transport:
    """A thread-safe connection to a hub; ``close`` ends its connections."""

    def __init__(
        self,
        url: str,
        *,
        runtime: Runtime,
        credentials: Credentials | None = None,
        retry_policy: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        self.url = url.rstrip("/")
        self.retry_policy = retry_policy or RetryPolicy()
        self._runtime = runtime
        self._credentials = credentials or Anonymous()
        self._http = httpx.Client(
            timeout=self.retry_policy.timeout_sec,
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

    def post(self, path: str, message: WireObject, response_type: type[ResponseT]) -> ResponseT:
        return self.ask("POST", path, message.encode(), response_type)

    def get(self, path: str, response_type: type[ResponseT]) -> ResponseT:
        return self.ask("GET", path, b"", response_type)

    def pause(self, attempt: int, retry_after: int | None) -> None:
        wait = self.retry_policy.pause(attempt, retry_after, self._runtime.fraction())
        self._runtime.sleep(wait)

    def ask(self, method: str, path: str, body: bytes, response_type: type[ResponseT]) -> ResponseT:
        """Send a request, with retries after an invalid or missing response."""
        attempt = 0
        while True:
            is_last, retry_after = attempt + 1 >= self.retry_policy.attempts, None
            try:
                answer = self._send(method, path, body)
                if answer.status == httpx.codes.OK:
                    return response_type.decode(answer.body)
                if is_last or answer.status not in _TRY_AGAIN:
                    raise self._error(answer)
                retry_after = answer.retry_after
            except (Unreachable, Malformed):
                if is_last:
                    raise
            self.pause(attempt, retry_after)
            attempt += 1

    def _error(self, answer: HttpAnswer) -> Rejected | HubRefused | Unreachable:
        try:
            return answer.error()
        except Malformed:
            return Unreachable(f"{self.url} answered {answer.status} without an error envelope")

    def _send(self, method: str, path: str, body: bytes) -> HttpAnswer:
        url = f"{self.url}{path}"
        headers = self._credentials.headers(method, url, body)
        if body:
            headers["Content-Type"] = CBOR
        try:
            with self._http.stream(method, url, content=body, headers=headers) as reply:
                status = reply.status_code
                retry_after = _retry_after(reply) if status in _TRY_AGAIN else None
                return HttpAnswer(status, retry_after, _bounded(reply, self._max_answer_bytes))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(
                f"{self.url} does not answer: {str(error) or type(error).__name__}"
            ) from error


def _bounded(reply: httpx.Response, most: int) -> bytes:
    parts, left = [], most
    for part in reply.iter_raw():
        left -= len(part)
        if left < 0:
            raise Malformed(f"expected a response of at most {most} bytes, got more")
        parts.append(part)
    return b"".join(parts)


def _retry_after(reply: httpx.Response) -> int | None:
    """Retry-After in whole seconds, up to MAX_WAIT_SEC; other forms are ignored."""
    text = reply.headers.get("Retry-After", "")
    return min(int(text), MAX_WAIT_SEC) if text.isdecimal() and text.isascii() else None
