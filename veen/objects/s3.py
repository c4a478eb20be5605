"""Single requests to one bucket of an S3-compatible store, with boto's errors turned into ours.

Nothing is tried again here: botocore's own retries are off. They end when the headers of an
answer are read, so a truncated body would escape them, and they hide whether a request was sent
twice, which a swap has to know.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, TypedDict, cast

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

from veen.objects.body import Body, md5_of
from veen.objects.port import NotAllowed, ObjectMissing, StoreError, StoreRefused
from veen.objects.retries import Transient
from veen.objects.settings import Credentials, S3Settings

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

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
class Stored:
    """What a put made. A store whose ETag is the MD5 confirms that it got what was sent; with
    another kind of ETag one has to look."""

    etag: str
    is_confirmed: bool


class Bucket:
    def __init__(self, client: S3Client, settings: S3Settings) -> None:
        self._client = client
        self._name = settings.bucket
        self._prefix = settings.prefix
        self._page_keys = settings.page_keys

    def put(self, key: str, body: Body, condition: Condition, token: str = "") -> Stored:
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
        return Stored(reply["ETag"], is_confirmed=reply["ETag"].strip('"') == md5.hex())

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


def open_bucket(settings: S3Settings, credentials: Credentials) -> Bucket:
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
    return Bucket(client, settings)


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
