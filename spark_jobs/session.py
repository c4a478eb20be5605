"""The Spark session of a job, and the client directory on this host that signs and decrypts.

The session uses the given master, or that of spark-submit. The passphrase comes from a file or from
the environment of the host; job arguments only name the source.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from veen.crypto import SigningKey
from veen.keystore.card import Identity, identity_of
from veen.keystore.directory import ClientDir
from veen.keystore.passphrase import read_passphrase
from veen.keystore.sealed import Secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PASSPHRASE: Final = b"VEEN_PASSPHRASE"


@contextmanager
def session(job: str) -> Iterator[SparkSession]:
    """A session that ends with the job; master and all other settings come from spark-submit."""
    # Commands without Spark import this module for identities.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    spark = SparkSession.builder.appName(job).config(PUSHDOWN, "true").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@cache
def identity_in(directory: Path, passphrase_file: Path | None) -> Identity:
    """The identity of a client directory, opened once in a process."""
    return identity_with(directory, _passphrase(passphrase_file))


def identity_with(directory: Path, passphrase: bytes | None) -> Identity:
    """Read an identity without taking a lock, so that concurrent tasks can open it."""
    sealed = ClientDir(directory).sealed()
    secrets = sealed.open(None if sealed.is_plain else passphrase)
    return identity_of(Secrets.decode(secrets), is_plain=sealed.is_plain)


def auditor(directory: Path | None, passphrase_file: Path | None) -> SigningKey:
    """The key of an identity, or a new one for this audit only."""
    if directory is None:
        return SigningKey(os.urandom(32))
    return identity_in(directory, passphrase_file).client


def _passphrase(file: Path | None) -> bytes | None:
    if file is not None:
        return read_passphrase(file)
    return os.environb.get(PASSPHRASE)
