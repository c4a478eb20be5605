"""The Spark session of a job: on the master it is given, or that of spark-submit.

Who stands for a result, and who may read: a client directory on this host, opened here.

The passphrase comes from a file or from the environment of the host; arguments of a job only say
where.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from veen.crypto import SigningKey
from veen.keystore.card import Identity, identity_of
from veen.keystore.directory import ClientDir
from veen.keystore.sealed import Secrets

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@contextmanager
def session(job: str) -> Iterator[SparkSession]:
    """A session that ends with the job; master and all else come from spark-submit."""
    spark = SparkSession.builder.appName(job).config(PUSHDOWN, "true").getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


PASSPHRASE: Final = b"VEEN_PASSPHRASE"


@cache
def identity_in(directory: Path, passphrase_file: Path | None) -> Identity:
    """The identity of a client directory, once for a process."""
    return identity_with(directory, _passphrase(passphrase_file))


def identity_with(directory: Path, passphrase: bytes | None) -> Identity:
    """It is only read: no lock is taken, so that tasks side by side can open it."""
    sealed = ClientDir(directory).sealed()
    secrets = sealed.open(None if sealed.is_plain else passphrase)
    return identity_of(Secrets.decode(secrets), is_plain=sealed.is_plain)


def auditor(directory: Path | None, passphrase_file: Path | None) -> SigningKey:
    """The key of an identity, or one made for this audit alone."""
    if directory is None:
        return SigningKey(os.urandom(32))
    return identity_in(directory, passphrase_file).client


def _passphrase(file: Path | None) -> bytes | None:
    if file is not None:
        return file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    return os.environb.get(PASSPHRASE)
