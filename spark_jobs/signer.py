"""Who stands for a result, and who may read: a client directory on this host, opened here.

The passphrase comes from a file or from the environment of the host; arguments of a job only say
where.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

from veen.keystore.directory import ClientDir
from veen.keystore.identity import Identity, identity_of
from veen.keystore.secrets import Secrets
from veen.sign import PrivateKey

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


def auditor(directory: Path | None, passphrase_file: Path | None) -> PrivateKey:
    """The key of an identity, or one made for this audit alone."""
    if directory is None:
        return PrivateKey(os.urandom(32))
    return identity_in(directory, passphrase_file).client


def _passphrase(file: Path | None) -> bytes | None:
    if file is not None:
        return file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    return os.environb.get(PASSPHRASE)
