"""Push, check, restore and audit as the commands do, without their processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hub.fsck import fsck
from hub.settings import load
from hub.storage.datadir import DataDir
from hub.storage.rebuild import rebuild
from recorder.archive.escrow import EscrowSealer, read_seeds
from recorder.archive.push import Pushed
from recorder.archive.push import push as push_directory
from recorder.archive.restore import RestoredArchive
from recorder.archive.restore import restore as restore_directory
from recorder.archive.source import PushSource
from recorder.archive.store import HubArchive, hubs
from recorder.archive.verify import ArchiveVerified, check
from veen.audit.report import AuditReport
from veen.keystore.card import Identity
from veen.keystore.directory import ClientDir
from veen.limits import Limits
from veen.objects.port import Store

VEEN = [sys.executable, "-m", "cli.main"]


def quiet(_done: int, _total: int | None) -> None:
    pass


def push(data: Path, store: Store, sealer: EscrowSealer | None = None) -> Pushed:
    return push_directory(PushSource(data, Limits()), store, sealer=sealer, progress=quiet)


def archive_of(store: Store) -> HubArchive:
    (hub_id,) = hubs(store)
    return HubArchive(store, hub_id)


def checked(store: Store, *, read_all: bool = False) -> ArchiveVerified:
    return check(archive_of(store), read_all=read_all, progress=quiet)


def restore(
    store: Store, to: Path, *, keys: Path | None = None, at: int | None = None
) -> RestoredArchive:
    archive = archive_of(store)
    return restore_directory(
        archive,
        to,
        seeds=lambda manifest: read_seeds(keys, archive.identity(manifest)) if keys else {},
        limits=Limits(),
        progress=quiet,
        at=at,
    )


def audit(data: Path, toml: Path) -> AuditReport:
    """``hub rebuild`` and ``hub verify``."""
    settings, datadir = load(toml), DataDir(data)
    datadir.create()
    rebuild(datadir, limits=settings.limits, streams=settings.streams, progress=quiet)
    return fsck.verify(
        datadir,
        limits=settings.limits,
        profiles=settings.profiles,
        streams=settings.streams,
        progress=quiet,
    )


def keygen(root: Path) -> Identity:
    return ClientDir(root).create(now=int(time.time()), random=os.urandom, passphrase=None)


def sealer(root: Path) -> EscrowSealer:
    return EscrowSealer(ClientDir(root).read_card().recipient(int(time.time())), os.urandom(32))


def veen(
    *arguments: object, env: Mapping[str, str] | None = None, timeout: float = 90
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*VEEN, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )


def files(root: Path) -> dict[str, bytes]:
    """What of a directory is truth: every file but derived state, scratch and keys."""
    result: dict[str, bytes] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and (name.startswith("log/") or "/" not in name) and name != "lock":
            result[name] = path.read_bytes()
    return result


def contents(store: Store) -> dict[str, bytes]:
    return {key: store.objects.get(key) for key in store.objects.keys()}  # noqa: SIM118


def detail(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    return document
