"""What the views of the hub's HTTP API share, created once for an application.

``HubContext`` holds it: the admission of messages up to the sequencer, the credentials of the
caller (bearer token or RFC 9421 signature), read access by policy, the names of streams and the
hub's identity, which is read again when a key was rotated (spec 8.4).
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final, cast

from flask import Flask, Response, current_app, g, request
from prometheus_client import CollectorRegistry

from hub.admission import VerifiedMsg, prefilter, signed, structural
from hub.api.content import RequestRefused
from hub.metrics import HttpMetrics, http_metrics
from hub.policy import Policy, PolicyPrincipal
from hub.sequencer.committer import Outcome, Unavailable
from hub.sequencer.ipc import QueueBound, SequencerClient
from hub.settings import HubSettings
from hub.storage.checkpoints import RecorderFiles
from hub.storage.datadir import DataDir
from hub.storage.identity import read_signed_identity
from hub.storage.index import LabelRow
from hub.storage.reader import LogReader
from veen.digest import h
from veen.errors import Code, Rejected, Untrusted
from veen.http_signature import SIGNATURE_MEMORY_SEC, NotSigned, SignatureVerifier, SignedMessage
from veen.hub_identity import HubIdentity
from veen.identity_store import SignedIdentity
from veen.label import Profile
from veen.limits import Limits
from veen.log import layout
from veen.log.entry import StreamRecord
from veen.version import VERSION

_REMEMBERED: Final = 65_536
"""The limit is per principal, so one that signs too often does not block others."""
_BEARER = "bearer"
_EVERYTHING = "*"
SERVER_VERSION: Final = VERSION
_KEY: Final = "veen"


class IdentityFile:
    """The signed identity of the hub, read again when its file changes."""

    def __init__(self, datadir: DataDir) -> None:
        self._datadir = datadir
        self._seen = self._mtime()
        self._signed = read_signed_identity(datadir)

    def current(self) -> HubIdentity:
        return self.signed().identity

    def signed(self) -> SignedIdentity:
        seen = self._mtime()
        if seen != self._seen:
            self._reload(seen)
        return self._signed

    def _reload(self, seen: int) -> None:
        """Read the documents again; the old identity stays in use while they are replaced."""
        try:
            self._signed = read_signed_identity(self._datadir)
        except Untrusted:
            return
        self._seen = seen

    def _mtime(self) -> int:
        return self._datadir.file(layout.IDENTITY).stat().st_mtime_ns


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """The outcome of a message, with its parsed form if it passed the worker's stages."""

    size: int
    verified: VerifiedMsg | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class SubmitBatch:
    """The outcomes of the messages of a request, and the time of verification and commit."""

    results: list[SubmitResult]
    verify_ms: float
    commit_ms: float


@dataclass(frozen=True, slots=True)
class Admission:
    """The stages of admission that a worker runs, and the commit by the sequencer."""

    sequencer: SequencerClient
    profiles: Mapping[bytes, Profile]
    limits: Limits

    def take(self, messages: Sequence[bytes]) -> SubmitBatch:
        """Check each message by itself; commit those that pass together and in order.

        While the sequencer does not answer, the outcome of these is Unavailable.
        """
        start = time.perf_counter()
        checked = [self.check(raw) for raw in messages]
        middle = time.perf_counter()
        try:
            outcomes: Iterable[Outcome] = self.sequencer.commit(passed(checked))
        except Unavailable as error:
            outcomes = repeat(error)
        end = time.perf_counter()
        results = results_of(messages, checked, outcomes)
        return SubmitBatch(results, 1_000 * (middle - start), 1_000 * (end - middle))

    def check(self, raw: bytes) -> Checked:
        try:
            return signed(structural(prefilter(raw, self.limits), self.profiles, self.limits))
        except Rejected as refusal:
            return refusal


Checked = VerifiedMsg | Rejected
"""A message after the stages of a worker."""


def passed(checked: Iterable[Checked]) -> list[VerifiedMsg]:
    return [verified for verified in checked if isinstance(verified, VerifiedMsg)]


def results_of(
    messages: Sequence[bytes], checked: Sequence[Checked], outcomes: Iterable[Outcome]
) -> list[SubmitResult]:
    """The result of each message; ``outcomes`` has one for each that passed."""
    committed = iter(outcomes)
    return [
        SubmitResult(len(raw), verified, next(committed))
        if isinstance(verified, VerifiedMsg)
        else SubmitResult(len(raw), None, verified)
        for raw, verified in zip(messages, checked, strict=True)
    ]


class SignatureGuard:
    """Finds the principal of a signed request and accepts each signature once (replay cache).

    Signatures expire by ``steady``, which setting the clock does not move: after a moment of a
    clock ahead they would otherwise stay until that time, and fill the memory.
    """

    def __init__(
        self,
        policy: Policy,
        steady: Callable[[], float] = time.monotonic,
        most_signatures: int = _REMEMBERED,
    ) -> None:
        self._policy = policy
        self._most_signatures = most_signatures
        self._steady = steady
        self._verifier = SignatureVerifier(self._key_of)
        self._taken: defaultdict[str, OrderedDict[bytes, float]] = defaultdict(OrderedDict)
        self._guard = threading.Lock()

    def principal(self, message: SignedMessage, body: bytes) -> PolicyPrincipal:
        signed = self._verifier.verify(message, body)
        principal = self._policy.by_name(signed.key_id)
        if principal is None:
            raise NotSigned("the signature names no principal")
        self._take(principal.name, signed.covered)
        return principal

    def _key_of(self, name: str) -> bytes | None:
        principal = self._policy.by_name(name)
        return principal.public_key if principal else None

    def _take(self, name: str, signed: bytes) -> None:
        """Raise NotSigned for a signature used before. Expired signatures do not verify."""
        now = self._steady()
        with self._guard:
            taken = self._taken[name]
            while taken and next(iter(taken.values())) < now:
                taken.popitem(last=False)
            if signed in taken:
                raise NotSigned("the signature was used before: sign again, with a new nonce")
            if len(taken) >= self._most_signatures:
                raise NotSigned(
                    f"principal {name} signed {self._most_signatures} requests within "
                    f"{SIGNATURE_MEMORY_SEC} s: retry later"
                )
            taken[signed] = now + SIGNATURE_MEMORY_SEC


class RequestCredentials:
    """Authenticates a request by its bearer token or its signature."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._signatures = SignatureGuard(policy)

    def principal(self, body: bytes) -> PolicyPrincipal:
        """The principal behind the current request, or E.UNAUTHORIZED."""
        authorization = request.headers.get("Authorization")
        if authorization is not None:
            return self._bearer(authorization)
        if "Signature" not in request.headers:
            raise RequestRefused(
                Code.UNAUTHORIZED, "expected a bearer token or a signed request, got neither"
            )
        try:
            return self._signatures.principal(_message(), body)
        except NotSigned as error:
            raise RequestRefused(Code.UNAUTHORIZED, str(error)) from error

    def _bearer(self, authorization: str) -> PolicyPrincipal:
        """Compare with every principal, in constant time."""
        scheme, _, token = authorization.partition(" ")
        digest = h(token.encode())
        matching = [
            principal
            for principal in self._policy.principals
            if hmac.compare_digest(principal.token_sha256 or b"", digest)
        ]
        if scheme.lower() != _BEARER or not matching:
            raise RequestRefused(
                Code.UNAUTHORIZED, "the token belongs to no principal of the policy"
            )
        return matching[0]


def _message() -> SignedMessage:
    """The request with its target as it was sent, not decoded."""
    target = request.environ.get("RAW_URI", "")
    if not target.startswith("/"):
        target = request.full_path.removesuffix("?")
    url = f"{request.scheme}://{request.host}{target}"
    return SignedMessage(request.method, url, request.headers)


class StreamNames:
    """The streams that have a name: from the configuration and from the control log."""

    def __init__(self, configured: Iterable[StreamRecord], reader: LogReader) -> None:
        self._reader = reader
        self._named = {record.stream_id(): record for record in configured}

    def known(self, stream_id: bytes | None) -> StreamRecord | None:
        """The stream, if it has a name. Names never change, so they are cached."""
        if stream_id is None:
            return None
        if stream_id not in self._named:
            record = self._reader.index.stream(stream_id)
            if record is not None:
                self._add(stream_id, record)
        return self._named.get(stream_id)

    def all(self) -> list[StreamRecord]:
        for stream_id, _, record in self._reader.index.streams():
            if stream_id not in self._named:
                self._add(stream_id, record)
        return sorted(self._named.values(), key=lambda record: record.name)

    def _add(self, stream_id: bytes, record: bytes) -> None:
        stream = StreamRecord.decode(record)
        if not stream.is_nameless():
            self._named.setdefault(stream_id, stream)


@dataclass(frozen=True, slots=True)
class Viewer:
    """The reader of a request: a principal, or anyone where reads are open."""

    principal: PolicyPrincipal | None
    names: StreamNames
    reader: LogReader

    def label(self, label: bytes) -> LabelRow:
        """The label, if the viewer may read it."""
        row = self.reader.label(label)
        if not self.may_read(row):
            raise RequestRefused(
                Code.FORBIDDEN,
                "the principal may not access the stream of this label",
                {"label": label},
            )
        return row

    def may_read(self, row: LabelRow) -> bool:
        stream = self.names.known(row.stream_id)
        return self.may_read_stream(stream.name) if stream else self._reads_everything()

    def may_read_stream(self, name: str) -> bool:
        return self.principal is None or self.principal.may_read(name)

    def manages(self) -> bool:
        return self.principal is None or self.principal.role.manages

    def verify_reads_recorder_checkpoints(self) -> None:
        if self.principal is None or self.principal.role.reads_recorder_checkpoints:
            return
        role = self.principal.role.title
        raise RequestRefused(Code.FORBIDDEN, f"role {role} may not read recorder checkpoints")

    def _reads_everything(self) -> bool:
        return self.principal is None or _EVERYTHING in self.principal.read


class Access:
    """Read and management access of the sender of a request, by the policy."""

    def __init__(self, settings: HubSettings, names: StreamNames, reader: LogReader) -> None:
        self._open = settings.reads == "open"
        self._names = names
        self._reader = reader
        self._credentials = RequestCredentials(settings.policy)

    def viewer(self, body: bytes) -> Viewer:
        """The sender of the current request with this body, or E.UNAUTHORIZED."""
        principal = None if self._open else self._credentials.principal(body)
        return Viewer(principal, self._names, self._reader)

    def manager(self, body: bytes) -> PolicyPrincipal:
        """The sender, who must be a principal that manages the hub, even where reads are open."""
        principal = self._credentials.principal(body)
        if not principal.role.manages:
            raise RequestRefused(
                Code.FORBIDDEN, f"role {principal.role.title} may not manage the hub"
            )
        return principal


@dataclass(frozen=True, slots=True)
class HubContext:
    settings: HubSettings
    datadir: DataDir
    queue: QueueBound
    sequencer: SequencerClient
    admission: Admission
    reader: LogReader
    recorder: RecorderFiles
    identity: IdentityFile
    names: StreamNames
    access: Access
    registry: CollectorRegistry
    metrics: HttpMetrics
    started: float


def install_context(app: Flask, settings: HubSettings, datadir: DataDir) -> None:
    """Create the context of an application, and give each request an identifier."""
    reader = LogReader(datadir, settings.limits)
    names = StreamNames(settings.streams, reader)
    registry = CollectorRegistry()
    queue = QueueBound(settings.queue_limit)
    sequencer = SequencerClient(datadir, queue, settings.request_timeout_sec)
    profiles = {profile.profile_id(): profile for profile in settings.profiles}
    app.extensions[_KEY] = HubContext(
        settings=settings,
        datadir=datadir,
        queue=queue,
        sequencer=sequencer,
        admission=Admission(sequencer, profiles, settings.limits),
        reader=reader,
        recorder=RecorderFiles(datadir, lambda: reader.index),
        identity=IdentityFile(datadir),
        names=names,
        access=Access(settings, names, reader),
        registry=registry,
        metrics=http_metrics(registry),
        started=time.monotonic(),
    )
    app.before_request(_set_request_id)
    app.after_request(_add_request_id)


def new_request_id() -> str:
    return secrets.token_hex(8)


def _set_request_id() -> None:
    g.request_id = new_request_id()


def _add_request_id(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.request_id
    return response


def hub_context() -> HubContext:
    """The context of the current application."""
    return context_of(current_app)


def context_of(app: Flask) -> HubContext:
    return cast("HubContext", app.extensions[_KEY])
