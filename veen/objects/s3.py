"""Single requests to one bucket of an S3-compatible store, with boto's errors turned into ours.

Nothing is tried again here: botocore's own retries are off. They end when the headers of an
answer are read, so a truncated body would escape them, and they hide whether a request was sent
twice, which a swap has to know.

How often a request is tried again, and how long it waits in between.

HeadStore on an S3-compatible bucket: a conditional put on the ETag that was read.

Every swap carries a token of its own in the metadata of the object. When an answer is lost, the
token that the head has afterwards tells whether it was ours; equal bytes would not, since two
writers may well want to write the same.

ObjectStore on an S3-compatible bucket: requests that are tried again until they are settled.
"""

from __future__ import annotations

import logging
import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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

from veen.objects.port import (
    NotAllowed,
    ObjectBody,
    ObjectMissing,
    S3Settings,
    StoreCredentials,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    md5_of,
)

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef
import shutil
from pathlib import Path

from veen.digest import h
from veen.objects.files import replacing
from veen.objects.port import (
    PIECE,
    HeadMoved,
    HeadUnknown,
    ObjectConflict,
    ObjectDamaged,
    StoreHead,
    body_of_bytes,
    body_of_file,
    check_key,
    check_text,
    digest_of,
    is_key,
    is_same_body,
    verify_digest,
)

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Transient(StoreUnavailable):
    """One request failed in a way that the next may not; it may have been carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Doubling pauses up to a bound, each cut by chance so that clients do not march in step."""

    attempts: int = 8
    first_pause: float = 0.1
    longest_pause: float = 10.0
    wait: Callable[[float], None] = time.sleep

    def run(self, what: str, attempt: Callable[[], T]) -> T:
        """What ``attempt`` returns; after the last attempt, the Transient it raised."""
        for pause in self._pauses():
            try:
                return attempt()
            except Transient as error:
                _LOG.info("%s: %s; again in %.2f s", what, error, pause)
            self.wait(pause)
        return attempt()

    def _pauses(self) -> Iterator[float]:
        for turn in range(self.attempts - 1):
            longest = min(self.longest_pause, self.first_pause * 2**turn)
            yield longest * (0.5 + secrets.randbelow(1_000) / 2_000)


TOKEN: Final = "veen-swap"  # noqa: S105 - a name of metadata, no secret
_PASSING_CODES: Final = {
    "BadDigest", "ConditionalRequestConflict", "IncompleteBody", "InvalidDigest",
    "OperationAborted", "RequestTimeout", "SlowDown", "Throttling", "ThrottlingException",
    "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",
}  # fmt: skip
_PASSING: Final = (
    BotoConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError,
)  # fmt: skip


class ConditionFailed(StoreError):
    """The store kept an If-None-Match or If-Match: it wrote nothing."""


class ConditionUnknown(StoreRefused):
    """The store has no such conditions, and says so."""


class Garbled(Transient):
    """The bytes that arrived do not have the checksum that the store keeps of them."""


class OutOfRange(StoreError):
    """The object ends before the range starts."""


class Condition(TypedDict, total=False):
    """What must hold for a put: nothing there, or exactly what was read."""

    IfNoneMatch: str
    IfMatch: str


ABSENT: Final = Condition(IfNoneMatch="*")


@dataclass(frozen=True, slots=True)
class Download:
    """An object on its way in; reading it to the end checks its length and checksum."""

    stream: BinaryIO
    etag: str
    token: str


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What a put made. A store whose ETag is the MD5 confirms that it got what was sent; with
    another kind of ETag one has to look."""

    etag: str
    is_confirmed: bool


class S3Bucket:
    def __init__(self, client: S3Client, settings: S3Settings) -> None:
        self._client = client
        self._name = settings.bucket
        self._prefix = settings.prefix
        self._page_keys = settings.page_keys

    def put(
        self, key: str, body: ObjectBody, condition: Condition, token: str = ""
    ) -> StoredObject:
        """Send the object with its checksums, which the store checks if it can."""
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
        """The next keys, as many as are asked for at once; none at the end."""
        with _translated(prefix):
            reply = self._client.list_objects_v2(
                Bucket=self._name,
                Prefix=self._prefix + prefix,
                StartAfter=self._prefix + start_after,
                MaxKeys=self._page_keys,
            )
        return [item["Key"].removeprefix(self._prefix) for item in reply.get("Contents", [])]

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
        # Some stores send the checksum of the whole object along with a range of it.
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
        raise StoreRefused(f"settings of the store: {error}") from error
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
        raise _meaning(key, error) from error
    except FlexibleChecksumError as error:
        raise Garbled(f"{key}: {error}") from error
    except _PASSING as error:
        raise Transient(f"{key}: {error}") from error
    except BotoCoreError as error:
        raise StoreRefused(f"{key}: {error}") from error


def _meaning(key: str, error: ClientError) -> StoreError:
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    said = f"{key}: the store answers {status} {code}"
    if code == "NoSuchBucket":
        return StoreRefused(f"{said}: there is no such bucket")
    if status == 404:
        return ObjectMissing(f"no object {key}")
    if status == 412:
        return ConditionFailed(said)
    if status == 416:
        return OutOfRange(said)
    if status == 501:
        return ConditionUnknown(said)
    if status == 429 or status >= 500 or code in _PASSING_CODES:
        return Transient(said)
    if status in {401, 403}:
        return NotAllowed(f"{said}: are access key, secret and rights as the store has them?")
    return StoreRefused(said)


def _check_range(key: str, reply: GetObjectOutputTypeDef, start: int, size: int) -> None:
    """A store that ignores the range would send the object from its start, and all of it."""
    if not reply.get("ContentRange", "").startswith(f"bytes {start}-"):
        raise StoreRefused(f"{key}: the store ignores ranges")
    if reply["ContentLength"] > size:
        raise StoreRefused(f"{key}: the store sends more than the range")


HEADS_FOLDER: Final = "heads/"


class S3Heads:
    def __init__(self, bucket: S3Bucket, retries: Retries, *, keeps_conditions: bool) -> None:
        self._bucket = bucket
        self._retries = retries
        self._keeps_conditions = keeps_conditions

    def read(self, name: str) -> StoreHead:
        return self._read(name)[0]

    def swap(self, old: StoreHead, value: bytes) -> StoreHead:
        if not self._keeps_conditions and self.read(old.name) != old:
            raise HeadMoved(f"head {old.name} has moved")
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
                return self._ours(token, HeadMoved(f"head {old.name} has moved"), old.name)
            return self._ours(token, _unknown(old.name), old.name)
        except Transient:
            return self._ours(token, _unknown(old.name), old.name)
        return StoreHead(old.name, value, etag)

    def _ours(self, token: str, otherwise: StoreError, name: str) -> StoreHead:
        """The head, if it is the one that we sent: an answer can be lost, and something between
        us and the store can send a request twice and pass on the second answer."""
        head, result = self._read(name)
        if result != token:
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
    return HeadUnknown(f"head {name}: the answer to a swap was lost")


def _head_key(name: str) -> str:
    check_key(name)
    return HEADS_FOLDER + name


OBJECTS_FOLDER: Final = "objects/"


class S3Objects:
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
            raise ValueError(f"a range of {size} bytes from {start}")
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
                    raise StoreRefused(f"the store lists {place!r} after {last!r}")
                last = place
                if is_key(key := place.removeprefix(OBJECTS_FOLDER)):
                    yield key

    def _page(self, prefix: str, last: str) -> list[str]:
        return self._retries.run(f"list {prefix}", lambda: self._bucket.page(prefix, last))

    def _put(self, key: str, body: ObjectBody) -> None:
        """Whatever is unclear after the attempts, what the key then holds decides."""
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
                raise StoreUnavailable(f"{key} was deleted while it was put") from None
        except Transient:
            if not self._holds(place, body):
                raise
        else:
            if not stored.is_confirmed and not self._holds(place, body):
                raise StoreUnavailable(f"{key} is not there, though the store has taken it")

    def _read(self, key: str, attempt: Callable[[], T]) -> T:
        """Bytes that are wrong each time were not garbled on their way."""
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
        """Whether these bytes are there; other bytes are a conflict."""

        def attempt() -> bool:
            with self._bucket.opened(place) as download, body.open() as ours:
                return is_same_body(download.stream, ours)

        try:
            is_same = self._read(place, attempt)
        except ObjectMissing:
            return False
        if not is_same:
            raise ObjectConflict(f"{place.removeprefix(OBJECTS_FOLDER)} holds other bytes")
        return True


class S3Retention:
    def __init__(self, bucket: S3Bucket, retries: Retries) -> None:
        self._bucket = bucket
        self._retries = retries

    def delete(self, key: str) -> None:
        place = _object_key(key)
        self._retries.run(f"delete {key}", lambda: self._bucket.delete(place))


def _object_key(key: str) -> str:
    check_key(key)
    return OBJECTS_FOLDER + key
