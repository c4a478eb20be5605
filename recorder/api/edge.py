"""What the views of the query service work with, made once for an application."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from flask import Flask, current_app
from prometheus_client import CollectorRegistry

from recorder.api.credentials import Credentials
from recorder.index.home import IndexHome
from recorder.query.descriptor import JsonLimits
from recorder.service.audit import Audits
from recorder.service.database import Database
from recorder.service.home import Bell, ServiceHome
from recorder.service.hub_papers import HubPapers
from recorder.service.metrics import EdgeMetrics, edge_metrics
from recorder.service.principals import Principals
from recorder.service.proofs import Proofs
from recorder.service.results import Results
from recorder.service.signatures import TakenSignatures
from recorder.service.streams import KnownStreams
from recorder.service.submission import Submissions, Waits
from recorder.service.viewing import Viewing
from recorder.settings import Settings
from veen.client.surroundings import Surroundings

_KEY: Final = "query"


@dataclass(frozen=True, slots=True)
class Edge:
    settings: Settings
    results: Results
    audits: Audits
    principals: Principals
    credentials: Credentials
    submissions: Submissions
    viewing: Viewing
    proofs: Proofs
    registry: CollectorRegistry
    metrics: EdgeMetrics
    wake: Callable[[], None]
    index: IndexHome
    follower: Path


def install(app: Flask, settings: Settings, waits: Waits) -> None:
    home = ServiceHome(settings.query.results)
    home.create()
    database = Database(home.database)
    results, bell, registry = Results(database), Bell(home), CollectorRegistry()
    principals = Principals(settings.query.principals)
    around = Surroundings(clock=lambda: int(time.time()), random=os.urandom, sleep=time.sleep)
    index = IndexHome(settings.index)
    app.config["MAX_CONTENT_LENGTH"] = settings.query.max_descriptor_bytes
    app.extensions[_KEY] = Edge(
        settings=settings,
        results=results,
        audits=Audits(database),
        principals=principals,
        credentials=Credentials(principals, TakenSignatures(database)),
        submissions=Submissions(
            results,
            limits=JsonLimits(max_bytes=settings.query.max_descriptor_bytes),
            waits=waits,
            streams=KnownStreams(settings, index).names,
            wake=bell.ring,
            surroundings=around,
            monotonic=time.monotonic,
        ),
        viewing=Viewing(results, home.rows, settings.query.max_page, index),
        proofs=Proofs(settings, index, HubPapers(home.papers)),
        registry=registry,
        metrics=edge_metrics(registry),
        wake=bell.ring,
        index=index,
        follower=home.follower,
    )


def edge() -> Edge:
    """That of the application at hand."""
    return cast("Edge", current_app.extensions[_KEY])
