"""A process that the supervisor of a zone has started, from its start to its end."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cli.zone_home import ZoneHome
from cli.zone_process import end_with_parent
from cli.zone_services import Service

_STOP_SEC: Final = 20.0
_log = logging.getLogger(__name__)


class Child(NamedTuple):
    service: Service
    process: subprocess.Popen[bytes]


def start(
    one: Service, home: ZoneHome, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """In a session of its own, and not for longer than we live."""
    output = _output(log)
    try:
        return subprocess.Popen(  # noqa: S603 - our own programs
            one.command,
            env={**environment, **one.more},
            cwd=home.postgres if one.user else home.root,
            user=one.user,
            group=one.user,
            extra_groups=None if one.user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - there is one thread
        )
    finally:
        os.close(output)


def stop(group: Sequence[Child]) -> None:
    """All at once; those that do not end in time are killed."""
    for one, process in group:
        if process.poll() is None:
            process.send_signal(one.stop)
    deadline = time.monotonic() + _STOP_SEC
    for one, process in group:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _log.warning("%s did not end within %.0f s and is killed", one.name, _STOP_SEC)
            process.kill()
            process.wait()


def _output(log: Path) -> int:
    """The log, or nowhere: a full disk must not keep a part from starting."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(log, flags, 0o600)
    except OSError as error:
        _log.warning("%s cannot be opened, its output is dropped: %s", log, error.strerror)
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
