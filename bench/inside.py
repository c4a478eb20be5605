"""A hub's committer in this process, in a directory that is gone afterwards."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import feed
import sample

from hub.admission import Gate
from hub.sequencer.committer import Committer
from hub.storage import identity
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.log import HubLog

CLOCK = int(time.time())
GATE = Gate(required=True, issuers=frozenset({feed.ISSUER.public}))


@contextmanager
def directory() -> Iterator[DataDir]:
    """A data directory on a disk; /tmp may be memory, where a sync costs nothing."""
    with tempfile.TemporaryDirectory(prefix="veen-bench-", dir="/var/tmp") as root:
        datadir = DataDir(Path(root) / "hub")
        datadir.create()
        yield datadir


def open_log(datadir: DataDir) -> HubLog:
    keys = identity.load_or_create(datadir, os.urandom, CLOCK)
    return HubLog(datadir, keys, sample.LIMITS, ())


@contextmanager
def committing(datadir: DataDir) -> Iterator[Committer]:
    lock = DataDirLock(datadir)
    log = open_log(datadir)
    try:
        yield Committer(log, GATE)
    finally:
        log.close()
        lock.release()


def writers(committer: Committer, count: int) -> list[feed.Writer]:
    """Clients whose capabilities the hub knows."""
    result = [feed.Writer.named(number, committer.log.keys.hub_id) for number in range(count)]
    for writer in result:
        committer.authorize(writer.token, CLOCK)
    return result
