"""Which store to use and how to reach it, as an entry point hands it over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from veen.errors import VeenError
from veen.objects.key import InvalidKey, check_key

MAX_PREFIX_BYTES: Final = 100


class BadStoreSettings(VeenError, ValueError):
    """Settings that name no store."""


class Addressing(Enum):
    """Where the name of the bucket goes: before the host, or into the path."""

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
            raise BadStoreSettings("the store has no bucket")
        if self.attempts < 1 or self.timeout_seconds <= 0 or self.page_keys < 1:
            raise BadStoreSettings("attempts, timeout_seconds and page_keys are above zero")
        if self.endpoint is not None and urlsplit(self.endpoint).scheme not in {"http", "https"}:
            raise BadStoreSettings(f"endpoint {self.endpoint!r} is no http or https URL")
        if self.prefix:
            _check_prefix(self.prefix)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


StoreSettings = FileSettings | S3Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def credentials_in(environment: Mapping[str, str], prefix: str = "") -> Credentials | None:
    """Those of the usual variables, where both keys are set: no secret stands on a command line."""
    access, secret, token = (
        environment.get(f"{prefix}AWS_{name}") or None
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")
    )
    if access is None or secret is None:
        return None
    return Credentials(access_key=access, secret_key=secret, session_token=token)


def settings_of(
    url: str,
    *,
    endpoint: str | None = None,
    region: str = "us-east-1",
    addressing: str = "auto",
    accept_overwriting_store: bool = False,
) -> StoreSettings:
    """Settings from ``file:///path`` or ``s3://bucket/prefix`` and what else a store needs."""
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise BadStoreSettings("the URL of a store is file:///path or s3://bucket/prefix alone")
    if parts.scheme == "file":
        return _file_settings(parts.netloc, unquote(parts.path))
    if parts.scheme != "s3":
        raise BadStoreSettings(f"the URL of a store starts with file:// or s3://, not {url!r}")
    prefix = parts.path.strip("/")
    return S3Settings(
        bucket=parts.netloc,
        prefix=prefix + "/" if prefix else "",
        endpoint=endpoint,
        region=region,
        addressing=_addressing(addressing),
        accept_overwriting_store=accept_overwriting_store,
    )


def _file_settings(host: str, path: str) -> FileSettings:
    if host not in {"", "localhost"} or not path.startswith("/"):
        raise BadStoreSettings("a directory is given as file:///absolute/path")
    return FileSettings(Path(path))


def _addressing(name: str) -> Addressing:
    try:
        return Addressing(name)
    except ValueError:
        raise BadStoreSettings(f"addressing {name!r}: auto, path or virtual is due") from None


def _check_prefix(prefix: str) -> None:
    if not prefix.endswith("/") or len(prefix.encode()) > MAX_PREFIX_BYTES:
        raise BadStoreSettings(
            f"prefix {prefix!r} must end with a slash and have at most {MAX_PREFIX_BYTES} bytes"
        )
    try:
        check_key(prefix[:-1])
    except InvalidKey as error:
        raise BadStoreSettings(f"prefix {prefix!r}: {error}") from error
