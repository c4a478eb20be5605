"""ObjectStore and HeadStore on a bucket of an S3-compatible store, with retries.

``S3Bucket`` makes single requests and translates boto's errors. botocore's own retries are off:
they end when the headers of a response are read, so a truncated body would escape them, and they
hide whether a request was sent twice, which a swap has to know. ``Retries`` is used instead.

A swap is a conditional put on the ETag that was read, with a token of its own in the metadata. When
a response is lost, the token of the head shows whether the swap was ours; equal bytes would not,
since two writers may write the same.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TypedDict, TypeVar, cast

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.parsers import ResponseParserError

from veen.digest import h
from veen.objects.files import replacing
from veen.objects.port import (
    PIECE,
    HeadMoved,
    HeadUnknown,
    NotAllowed,
    ObjectBody,
    ObjectConflict,
    ObjectDamaged,
    ObjectMissing,
    S3Settings,
    StoreCredentials,
    StoreError,
    StoreHead,
    StoreRefused,
    StoreUnavailable,
    body_of_bytes,
    body_of_file,
    check_key,
    check_text,
    digest_of,
    is_key,
    is_same_body,
    md5_of,
    verify_digest,
)

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
TOKEN: Final = "veen-swap"  # noqa: S105 - a name of metadata, no secret
_TRANSIENT_CODES: Final = {
    "BadDigest", "ConditionalRequestConflict", "IncompleteBody", "InvalidDigest",
    "OperationAborted", "RequestTimeout", "SlowDown", "Throttling", "ThrottlingException",
    "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
}  # fmt: skip
_TRANSIENT: Final = (
    BotoConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError,
)  # fmt: skip
HEADS_FOLDER: Final = "heads/"
OBJECTS_FOLDER: Final = "objects/"


class Transient(StoreUnavailable):
    """A request failed and may be retried; it may have been executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Exponential backoff up to a bound, with jitter."""

    attempts: int = 8
    first_pause: float = 0.1
    longest_pause: float = 10.0
    wait: Callable[[float], None] = time.sleep

    def run(self, what: str, attempt: Callable[[], T]) -> T:
        """The result of ``attempt``, retried after Transient errors."""
        for pause in self._pauses():
            try:
                return attempt()
            except Transient as error:
                _LOG.info("%s: %s; again in %.2f s", what, error, pause)
            self.wait(pause)
        return attempt()

    def _pauses(self) -> Iterator[float]:
        for attempt in range(self.attempts - 1):
            longest = min(self.longest_pause, self.first_pause * 2**attempt)
            yield longest * (0.5 + secrets.randbelow(1_000) / 2_000)


class ConditionFailed(StoreError):
    """If-None-Match or If-Match was not fulfilled; nothing was written."""


class ConditionUnknown(StoreRefused):
    """The store does not support conditional requests."""


class Garbled(Transient):
    """The received bytes do not have the checksum of the store."""


class OutOfRange(StoreError):
    """The object ends before the range starts."""


class Condition(TypedDict, total=False):
    """The condition of a put: no object, or the version that was read."""

    IfNoneMatch: str
    IfMatch: str


ABSENT: Final = Condition(IfNoneMatch="*")


@dataclass(frozen=True, slots=True)
class Download:
    """An object being downloaded; its length and checksum are checked at the end."""

    stream: BinaryIO
    etag: str
    token: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The result of a put. An ETag that is the MD5 confirms the content; otherwise it has to be
    read back."""

    etag: str
    is_confirmed: bool


class S3Bucket:
    """Single requests to a bucket, without retries."""

    def __init__(self, client: S3Client, settings: S3Settings) -> None:
        self._client = client
        self._name = settings.bucket
        self._prefix = settings.prefix
        self._page_keys = settings.page_keys

    def put(
        self, key: str, body: ObjectBody, condition: Condition, token: str = ""
    ) -> StoredObject:
        """Put an object with checksums for the store to verify."""
        checksum, md5 = b64encode(body.sha256).decode(), md5_of(body)
        with _translated(key), body.open() as stream:
            reply = self._client.put_object(
                Bucket=self._name,
                Key=self._prefix + key,
                Body=stream,
                ContentLength=body.size,
                ContentMD5=b64encode(md5).decode(),
                ChecksumAlgorithm="SHA256",
                ChecksumSHA256=checksum,
                Metadata={TOKEN: token} if token else {},
                **condition,
            )
        return StoredObject(reply["ETag"], is_confirmed=reply["ETag"].strip('"') == md5.hex())

    @contextmanager
    def opened(self, key: str) -> Iterator[Download]:
        with _translated(key):
            reply = self._client.get_object(
                Bucket=self._name, Key=self._prefix + key, ChecksumMode="ENABLED"
            )
            with _closing(reply["Body"]) as stream:
                yield Download(stream, reply["ETag"], reply["Metadata"].get(TOKEN, ""))

    def range(self, key: str, start: int, size: int) -> bytes:
        with _translated(key):
            reply = self._client.get_object(
                Bucket=self._name, Key=self._prefix + key, Range=f"bytes={start}-{start + size - 1}"
            )
            with _closing(reply["Body"]) as stream:
                _check_range(key, reply, start, size)
                return stream.read()

    def size(self, key: str) -> int:
        with _translated(key):
            return self._client.head_object(Bucket=self._name, Key=self._prefix + key)[
                "ContentLength"
            ]

    def page(self, prefix: str, start_after: str) -> list[str]:
        """The next page of keys; empty at the end."""
        with _translated(prefix):
            reply = self._client.list_objects_v2(
                Bucket=self._name,
                Prefix=self._prefix + prefix,
                StartAfter=self._prefix + start_after,
                MaxKeys=self._page_keys,
            )
        return [entry["Key"].removeprefix(self._prefix) for entry in reply.get("Contents", [])]

    def delete(self, key: str) -> None:
        with _translated(key):
            self._client.delete_object(Bucket=self._name, Key=self._prefix + key)


def open_bucket(settings: S3Settings, credentials: StoreCredentials) -> S3Bucket:
    config = Config(
        connect_timeout=settings.timeout_seconds,
        read_timeout=settings.timeout_seconds,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": settings.addressing.value},
        request_checksum_calculation="when_required",
        # Some stores send the checksum of the whole object with a range.
        response_checksum_validation="when_required",
        ignore_configured_endpoint_urls=True,  # type: ignore[call-arg]
    )
    try:
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=settings.endpoint,
            region_name=settings.region,
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            aws_session_token=credentials.session_token,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise StoreRefused(f"the settings of the store are invalid: {error}") from error
    return S3Bucket(client, settings)


@contextmanager
def _closing(body: StreamingBody) -> Iterator[BinaryIO]:
    try:
        yield cast("BinaryIO", body)
    finally:
        body.close()


@contextmanager
def _translated(key: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise _translate(key, error) from error
    except FlexibleChecksumError as error:
        raise Garbled(f"{key}: {error}") from error
    except _TRANSIENT as error:
        raise Transient(f"{key}: {error}") from error
    except BotoCoreError as error:
        raise StoreRefused(f"{key}: {error}") from error


def _translate(key: str, error: ClientError) -> StoreError:
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    answer = f"{key}: the store answers {status} {code}"
    if code == "NoSuchBucket":
        return StoreRefused(f"{answer}: there is no such bucket")
    if status == 404:
        return ObjectMissing(f"no object {key}")
    if status == 412:
        return ConditionFailed(answer)
    if status == 416:
        return OutOfRange(answer)
    if status == 501:
        return ConditionUnknown(answer)
    if status == 429 or status >= 500 or code in _TRANSIENT_CODES:
        return Transient(answer)
    if status in {401, 403}:
        return NotAllowed(
            f"{answer}: check the access key, the secret and the permissions at the store"
        )
    return StoreRefused(answer)


def _check_range(key: str, reply: GetObjectOutputTypeDef, start: int, size: int) -> None:
    """Raise StoreRefused for a store that ignores the range."""
    if not reply.get("ContentRange", "").startswith(f"bytes {start}-"):
        raise StoreRefused(f"{key}: the store ignores Range requests")
    if reply["ContentLength"] > size:
        raise StoreRefused(f"{key}: the store sent more than the requested range")


class S3Heads:
    """A HeadStore on a bucket."""

    def __init__(self, bucket: S3Bucket, retries: Retries, *, keeps_conditions: bool) -> None:
        self._bucket = bucket
        self._retries = retries
        self._keeps_conditions = keeps_conditions

    def read(self, name: str) -> StoreHead:
        return self._read(name)[0]

    def swap(self, old: StoreHead, value: bytes) -> StoreHead:
        if not self._keeps_conditions and self.read(old.name) != old:
            raise HeadMoved(f"head {old.name} was changed by another writer")
        place, body, token = _head_key(old.name), body_of_bytes(value), secrets.token_hex(16)
        sent = 0

        def attempt() -> str:
            nonlocal sent
            sent += 1
            return self._bucket.put(place, body, self._condition(old), token).etag

        try:
            etag = self._retries.run(f"swap {old.name}", attempt)
        except (ConditionFailed, ObjectMissing):
            if sent == 1:
                return self._ours(
                    token, HeadMoved(f"head {old.name} was changed by another writer"), old.name
                )
            return self._ours(token, _unknown(old.name), old.name)
        except Transient:
            return self._ours(token, _unknown(old.name), old.name)
        return StoreHead(old.name, value, etag)

    def _ours(self, token: str, otherwise: StoreError, name: str) -> StoreHead:
        """The head if its token is ours, or raise ``otherwise``: a response can be lost, and a
        proxy can send a request twice and return the second response."""
        head, stored = self._read(name)
        if stored != token:
            raise otherwise
        return head

    def _read(self, name: str) -> tuple[StoreHead, str]:
        place = _head_key(name)

        def attempt() -> tuple[StoreHead, str]:
            with self._bucket.opened(place) as download:
                return StoreHead(name, download.stream.read(), download.etag), download.token

        try:
            return self._retries.run(f"read {name}", attempt)
        except ObjectMissing:
            return StoreHead(name, None, ""), ""

    def _condition(self, old: StoreHead) -> Condition:
        if not self._keeps_conditions:
            return Condition()
        return ABSENT if old.value is None else Condition(IfMatch=old.version)


def _unknown(name: str) -> HeadUnknown:
    return HeadUnknown(f"head {name}: the response to a swap was lost; read the head again")


def _head_key(name: str) -> str:
    check_key(name)
    return HEADS_FOLDER + name


class S3Objects:
    """An ObjectStore on a bucket."""

    def __init__(self, bucket: S3Bucket, retries: Retries, *, keeps_conditions: bool) -> None:
        self._bucket = bucket
        self._retries = retries
        self._keeps_conditions = keeps_conditions

    def put(self, key: str, body: bytes) -> None:
        self._put(key, body_of_bytes(body))

    def put_file(self, key: str, source: Path) -> None:
        self._put(key, body_of_file(source))

    def get(self, key: str, *, expect: bytes | None = None) -> bytes:
        def attempt() -> bytes:
            with self._bucket.opened(_object_key(key)) as download:
                return download.stream.read()

        data = self._read(key, attempt)
        verify_digest(key, h(data), expect)
        return data

    def get_file(self, key: str, to: Path, *, expect: bytes | None = None) -> None:
        def attempt() -> None:
            with (
                self._bucket.opened(_object_key(key)) as download,
                replacing(to, to.parent) as target,
            ):
                shutil.copyfileobj(download.stream, target, PIECE)
                if expect is not None:
                    verify_digest(key, digest_of(target), expect)

        self._read(key, attempt)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        if start < 0 or size < 0:
            raise ValueError(
                f"expected start and size of a range from 0 on, got {size} bytes from {start}"
            )
        # HTTP has no empty range.
        place, at_least_one = _object_key(key), max(size, 1)
        try:
            data = self._retries.run(
                f"get {key}", lambda: self._bucket.range(place, start, at_least_one)
            )
        except OutOfRange:
            return b""
        return data[:size]

    def size(self, key: str) -> int:
        place = _object_key(key)
        return self._retries.run(f"size of {key}", lambda: self._bucket.size(place))

    def keys(self, prefix: str = "", *, start_after: str = "") -> Iterator[str]:
        check_text(prefix)
        check_text(start_after)
        last = OBJECTS_FOLDER + start_after
        while page := self._page(OBJECTS_FOLDER + prefix, last):
            for place in page:
                if place <= last:
                    raise StoreRefused(
                        f"expected a listing in byte order, got {place!r} after {last!r}"
                    )
                last = place
                if is_key(key := place.removeprefix(OBJECTS_FOLDER)):
                    yield key

    def _page(self, prefix: str, last: str) -> list[str]:
        return self._retries.run(f"list {prefix}", lambda: self._bucket.page(prefix, last))

    def _put(self, key: str, body: ObjectBody) -> None:
        """Put an object; after an unclear result the stored bytes decide."""
        place = _object_key(key)
        if not self._keeps_conditions and self._holds(place, body):
            return
        condition = ABSENT if self._keeps_conditions else Condition()
        try:
            stored = self._retries.run(
                f"put {key}", lambda: self._bucket.put(place, body, condition)
            )
        except ConditionFailed:
            if not self._holds(place, body):
                raise StoreUnavailable(f"{key} was deleted during the put; try again") from None
        except Transient:
            if not self._holds(place, body):
                raise
        else:
            if not stored.is_confirmed and not self._holds(place, body):
                raise StoreUnavailable(f"{key} is missing although the store acknowledged the put")

    def _read(self, key: str, attempt: Callable[[], T]) -> T:
        """Read with retries; a wrong checksum at every attempt is ObjectDamaged."""
        garbled = 0

        def counted() -> T:
            nonlocal garbled
            try:
                return attempt()
            except Garbled:
                garbled += 1
                raise

        try:
            return self._retries.run(f"get {key}", counted)
        except Garbled as error:
            if garbled < self._retries.attempts:
                raise
            raise ObjectDamaged(str(error)) from error

    def _holds(self, place: str, body: ObjectBody) -> bool:
        """Whether the object has these bytes; other bytes raise ObjectConflict."""

        def attempt() -> bool:
            with self._bucket.opened(place) as download, body.open() as ours:
                return is_same_body(download.stream, ours)

        try:
            is_same = self._read(place, attempt)
        except ObjectMissing:
            return False
        if not is_same:
            raise ObjectConflict(f"{place.removeprefix(OBJECTS_FOLDER)} exists with other bytes")
        return True


class S3Retention:
    """Deletes objects of a bucket."""

    def __init__(self, bucket: S3Bucket, retries: Retries) -> None:
        self._bucket = bucket
        self._retries = retries

    def delete(self, key: str) -> None:
        place = _object_key(key)
        self._retries.run(f"delete {key}", lambda: self._bucket.delete(place))


def _object_key(key: str) -> str:
    check_key(key)
    return OBJECTS_FOLDER + key
