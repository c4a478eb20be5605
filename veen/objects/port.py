"""The port to object storage: immutable objects by key, and heads with compare-and-swap.

Keys and head names are the same in every store, on a disk and in a URL; an invalid name raises
InvalidKey. A percent sign is not allowed, because stores and proxies disagree on how often to
decode it; so the directory store can use it as a mark. ``StoreSettings`` names a store,
``StoreStatus`` says what is known of its guarantees.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from hashlib import file_digest, md5
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast
from urllib.parse import unquote, urlsplit

from veen.digest import h, h_file
from veen.errors import Untrusted, VeenError
from veen.system.config import Table

MAX_KEY_BYTES: Final = 900
MAX_SEGMENT_BYTES: Final = 250

# Control characters, characters that XML does not allow, lone surrogates, and "%" and "\", which
# break paths and URLs.
_REFUSED: Final = re.compile("[\x00-\x1f\x7f%\\\\\ud800-\udfff\ufffe\uffff]")
MAX_OBJECT_BYTES: Final = 5 * 2**30
"""The size limit of an object: that of a single S3 request."""
PIECE: Final = 2**20
MAX_PREFIX_BYTES: Final = 100


class InvalidKey(VeenError, ValueError):
    """A key that no store accepts."""


def check_key(key: str) -> None:
    """Raise InvalidKey for a segment that is empty, ".", ".." or too long."""
    check_text(key)
    for segment in key.split("/"):
        if segment in {"", ".", ".."}:
            raise InvalidKey(f"key {key!r}: the segment {segment!r} is not allowed")
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            raise InvalidKey(f"key {key!r}: expected segments of at most {MAX_SEGMENT_BYTES} bytes")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidKey(f"key {key!r}: expected at most {MAX_KEY_BYTES} bytes")


def check_text(text: str) -> None:
    """Raise InvalidKey for characters not allowed in keys and prefixes."""
    match = _REFUSED.search(text)
    if match:
        raise InvalidKey(f"{text!r}: the character {match[0]!r} is not allowed")


def is_key(text: str) -> bool:
    try:
        check_key(text)
    except InvalidKey:
        return False
    return True


class StoreError(VeenError):
    """The base class of errors of a store.

    A failed sync of a directory is ``durable.SyncFailed`` instead, and the process must end.
    """


class ObjectMissing(StoreError, LookupError):
    """No object has this key."""


class ObjectConflict(StoreError):
    """The key has other bytes; an object is never rewritten."""


class HeadMoved(StoreError):
    """The head has changed since it was read; nothing was written."""


class StoreUnavailable(StoreError):
    """The store failed after all retries; it may work later."""


class HeadUnknown(StoreUnavailable):
    """A swap may or may not have happened: read the head to find out."""


class StoreRefused(StoreError):
    """The store refuses, or cannot keep the contract; a retry does not help."""


class NotAllowed(StoreRefused):
    """The store denies access."""


class ObjectDamaged(Untrusted):
    """The bytes of an object do not have the expected digest."""


class ObjectStore(Protocol):
    """Objects of at most MAX_OBJECT_BYTES, each written once."""

    def put(self, key: str, body: bytes) -> None:
        """Store ``body`` durably and atomically. Idempotent for the same bytes; other bytes
        raise ObjectConflict. Of concurrent puts of different bytes exactly one succeeds. After
        another error the object may or may not exist, and a retry is safe."""

    def put_file(self, key: str, source: Path) -> None:
        """Like ``put``, from a file and in bounded memory."""

    def get(self, key: str, *, expect: bytes | None = None) -> bytes:
        """The whole object, or ObjectMissing. With its SHA-256 as ``expect``, other bytes raise
        ObjectDamaged."""

    def get_file(self, key: str, to: Path, *, expect: bytes | None = None) -> None:
        """Like ``get``, into a file and in bounded memory; ``to`` is replaced atomically and
        durably."""

    def get_range(self, key: str, start: int, size: int) -> bytes:
        """At most ``size`` bytes from ``start``, fewer at the end of the object."""

    def size(self, key: str) -> int:
        """The size of the object in bytes, or ObjectMissing."""

    def keys(self, prefix: str = "", *, start_after: str = "") -> Iterator[str]:
        """The keys that start with ``prefix`` and are greater than ``start_after``, ordered by
        their UTF-8 bytes and listed lazily. Objects put before the first step are included;
        those put meanwhile may be."""


@dataclass(frozen=True, slots=True)
class StoreHead:
    """A mutable value as it was read; ``value`` is None before the first write."""

    name: str
    value: bytes | None
    version: str


class HeadStore(Protocol):
    """Mutable values, in a namespace of their own."""

    def read(self, name: str) -> StoreHead:
        """The current head."""

    def swap(self, old: StoreHead, value: bytes) -> StoreHead:
        """Replace ``old`` by ``value`` durably (compare-and-swap), or raise HeadMoved. Of
        concurrent swaps of the same ``old`` exactly one succeeds. After HeadUnknown it may or
        may not have been done."""


class Retention(Protocol):
    """Deletion, which is separate from ObjectStore."""

    def delete(self, key: str) -> None:
        """Delete an object. Idempotent, so that an interrupted retention can be repeated."""


@dataclass(frozen=True, slots=True)
class ObjectBody:
    """The bytes of a put, which can be opened for every attempt."""

    size: int
    sha256: bytes
    open: Callable[[], BinaryIO]


def body_of_bytes(data: bytes) -> ObjectBody:
    return ObjectBody(_checked_size(len(data)), h(data), lambda: io.BytesIO(data))


def body_of_file(source: Path) -> ObjectBody:
    size = _checked_size(source.stat().st_size)
    with source.open("rb") as file:
        return ObjectBody(size, digest_of(file), lambda: source.open("rb"))


def digest_of(file: io.BufferedIOBase) -> bytes:
    """The SHA-256 of an open file, from its start."""
    file.seek(0)
    return h_file(file)


def md5_of(body: ObjectBody) -> bytes:
    """The MD5 of a body, for stores that check uploads by nothing else; not for security."""
    with body.open() as stream:
        return file_digest(
            cast("io.BufferedIOBase", stream), lambda: md5(usedforsecurity=False)
        ).digest()


def verify_digest(key: str, value: bytes, expect: bytes | None) -> None:
    if expect is not None and value != expect:
        raise ObjectDamaged(f"{key}: expected digest {expect.hex()}, got {value.hex()}")


def is_same_body(left: BinaryIO, right: BinaryIO) -> bool:
    """Whether two streams have the same bytes; short reads are allowed."""
    while True:
        ours, theirs = _piece(left), _piece(right)
        if ours != theirs:
            return False
        if not ours:
            return True


def _piece(stream: BinaryIO) -> bytes:
    pieces, missing = [], PIECE
    while missing:
        piece = stream.read(missing)
        if not piece:
            break
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _checked_size(size: int) -> int:
    if size > MAX_OBJECT_BYTES:
        raise StoreRefused(
            f"object too large: expected at most {MAX_OBJECT_BYTES} bytes, got {size}"
        )
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """The result of a probe, for status and metrics; None where it was not probed."""

    kind: str
    url: str
    keeps_if_none_match: bool | None = None
    keeps_if_match: bool | None = None

    @property
    def keeps_conditions(self) -> bool | None:
        conditions = {self.keeps_if_none_match, self.keeps_if_match}
        return False if False in conditions else None if None in conditions else True

    @property
    def warnings(self) -> tuple[str, ...]:
        warnings = []
        if self.keeps_if_none_match is False:
            warnings.append(
                f"{self.url} ignores If-None-Match: two writers at once can overwrite an object"
            )
        if self.keeps_if_match is False:
            warnings.append(f"{self.url} ignores If-Match: of two swaps of a head one can be lost")
        return tuple(warnings)


@dataclass(frozen=True, slots=True)
class Store:
    """An opened store."""

    objects: ObjectStore
    heads: HeadStore
    status: StoreStatus


class BadStoreSettings(VeenError, ValueError):
    """Invalid settings of a store."""


class Addressing(Enum):
    """The place of the bucket's name in URLs: the host, or the path."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"


@dataclass(frozen=True, slots=True)
class FileSettings:
    root: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """``prefix`` is empty or ends with a slash."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str = "us-east-1"
    addressing: Addressing = Addressing.AUTO
    accept_overwriting_store: bool = False
    timeout_seconds: float = 60.0
    attempts: int = 8
    page_keys: int = 1_000

    def __post_init__(self) -> None:
        if not self.bucket:
            raise BadStoreSettings("URL of the store: expected a bucket, got none")
        if self.attempts < 1 or self.timeout_seconds <= 0 or self.page_keys < 1:
            raise BadStoreSettings(
                "attempts, timeout_seconds and page_keys: expected numbers above zero"
            )
        if self.endpoint is not None and urlsplit(self.endpoint).scheme not in {"http", "https"}:
            raise BadStoreSettings(f"endpoint = {self.endpoint!r}: expected an http or https URL")
        if self.prefix:
            _check_prefix(self.prefix)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


StoreSettings = FileSettings | S3Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCredentials:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def credentials_in(environment: Mapping[str, str], prefix: str = "") -> StoreCredentials | None:
    """The credentials of the usual environment variables, if both keys are set."""
    access, secret, token = (
        environment.get(f"{prefix}AWS_{name}") or None
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
    )
    if access is None or secret is None:
        return None
    return StoreCredentials(access_key=access, secret_key=secret, session_token=token)


def settings_of(
    url: str,
    *,
    endpoint: str | None = None,
    region: str = "us-east-1",
    addressing: str = "auto",
    accept_overwriting_store: bool = False,
) -> StoreSettings:
    """Settings from ``file:///path`` or ``s3://bucket/prefix``, and the options of a store."""
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise BadStoreSettings(
            "URL of the store: expected file:///path or s3://bucket/prefix without user, query "
            "or fragment"
        )
    if parts.scheme == "file":
        return _file_settings(parts.netloc, unquote(parts.path))
    if parts.scheme != "s3":
        raise BadStoreSettings(f"URL of the store: expected file://... or s3://..., got {url!r}")
    prefix = parts.path.strip("/")
    return S3Settings(
        bucket=parts.netloc,
        prefix=prefix + "/" if prefix else "",
        endpoint=endpoint,
        region=region,
        addressing=_addressing(addressing),
        accept_overwriting_store=accept_overwriting_store,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLocation:
    """A store as command lines and configuration files name it; its secrets are elsewhere."""

    url: str
    endpoint: str | None = None
    region: str = "us-east-1"
    addressing: str = Addressing.AUTO.value
    accept_overwriting_store: bool = False

    @classmethod
    def of(cls, settings: StoreSettings) -> StoreLocation:
        if isinstance(settings, FileSettings):
            return cls(url=settings.root.absolute().as_uri())
        return cls(
            url=settings.url,
            endpoint=settings.endpoint,
            region=settings.region,
            addressing=settings.addressing.value,
            accept_overwriting_store=settings.accept_overwriting_store,
        )

    @classmethod
    def read(cls, table: Table) -> StoreLocation:
        """The location in the table [objects] of a recorder, or [storage] of a zone."""
        names = [addressing.value for addressing in Addressing]
        location = cls(
            url=table.text("url"),
            endpoint=table.url("endpoint", None),
            region=table.text("region", "us-east-1"),
            addressing=table.choice("addressing", names, Addressing.AUTO.value),
            accept_overwriting_store=table.flag("accept_overwriting_store", default=False),
        )
        table.done()
        try:
            location.settings()
        except BadStoreSettings as error:
            table.refuse("url", location.url, str(error))
        return location

    def settings(self) -> StoreSettings:
        return settings_of(
            self.url,
            endpoint=self.endpoint,
            region=self.region,
            addressing=self.addressing,
            accept_overwriting_store=self.accept_overwriting_store,
        )

    def arguments(self) -> tuple[str, ...]:
        """The options of a command or a Spark job; ``veen.objects.store`` parses those of a job."""
        argv = ["--store", self.url]
        if self.url.startswith("file:"):
            return tuple(argv)
        argv += ["--region", self.region, "--addressing", self.addressing]
        if self.endpoint is not None:
            argv += ["--endpoint", self.endpoint]
        if self.accept_overwriting_store:
            argv.append("--accept-overwriting-store")
        return tuple(argv)


def _file_settings(host: str, path: str) -> FileSettings:
    if host not in {"", "localhost"} or not path.startswith("/"):
        raise BadStoreSettings(
            "URL of the store: expected file:///absolute/path, got a host or a relative path"
        )
    return FileSettings(Path(path))


def _addressing(name: str) -> Addressing:
    try:
        return Addressing(name)
    except ValueError:
        raise BadStoreSettings(f"addressing = {name!r}: expected auto, path or virtual") from None


def _check_prefix(prefix: str) -> None:
    if not prefix.endswith("/") or len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise BadStoreSettings(
            f"prefix = {prefix!r}: expected a slash at the end and at most {MAX_PREFIX_BYTES} bytes"
        )
    try:
        check_key(prefix[:-1])
    except InvalidKey as error:
        raise BadStoreSettings(f"prefix = {prefix!r}: {error}") from error
