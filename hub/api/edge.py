"""What the views of the HTTP edge work with, made once for an application."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, cast

from flask import Flask, current_app
from prometheus_client import CollectorRegistry

from hub.api.access import Access
from hub.api.identity_file import IdentityFile
from hub.api.intake import Intake
from hub.api.stream_names import StreamNames
from hub.metrics import EdgeMetrics, edge_metrics
from hub.sequencer.client import SequencerClient
from hub.settings import Settings
from hub.storage.datadir import DataDir
from hub.storage.reader import LogReader
from hub.storage.recorder_files import RecorderFiles
from veen.version import VERSION

SERVER_VERSION: Final = VERSION
_KEY: Final = "veen"


@dataclass(frozen=True, slots=True)
class Edge:
    settings: Settings
    datadir: DataDir
    sequencer: SequencerClient
    intake: Intake
    reader: LogReader
    recorder: RecorderFiles
    identity: IdentityFile
    names: StreamNames
    access: Access
    registry: CollectorRegistry
    metrics: EdgeMetrics
    started: float


def install(app: Flask, settings: Settings, datadir: DataDir) -> None:
    reader = LogReader(datadir, settings.limits)
    names = StreamNames(settings.streams, reader)
    registry = CollectorRegistry()
    sequencer = SequencerClient(datadir, settings.queue_limit, settings.request_timeout_sec)
    profiles = {profile.profile_id(): profile for profile in settings.profiles}
    app.extensions[_KEY] = Edge(
        settings=settings,
        datadir=datadir,
        sequencer=sequencer,
        intake=Intake(sequencer, profiles, settings.limits),
        reader=reader,
        recorder=RecorderFiles(datadir),
        identity=IdentityFile(datadir),
        names=names,
        access=Access(settings, names, reader),
        registry=registry,
        metrics=edge_metrics(registry),
        started=time.monotonic(),
    )


def edge() -> Edge:
    """That of the application at hand."""
    return cast("Edge", current_app.extensions[_KEY])
