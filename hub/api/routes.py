"""Every route of the hub in one table: what it takes, what it gives, who may call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen import envelope, tooling
from veen.captoken import CapToken
from veen.wire import WireMap, WireObject

JSON: Final = "application/json"
TEXT: Final = "text/plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str
    summary: str
    request: type[WireObject] | None = None
    query: type[WireMap] | None = None
    response: type[WireObject] | None = None
    media_type: str = JSON
    secured: bool = False

    @property
    def name(self) -> str:
        return f"{self.method}_{self.path.strip('/').replace('/', '_').replace('.', '_')}"


def _post(
    path: str,
    summary: str,
    request: type[WireObject],
    response: type[WireObject],
    *,
    secured: bool = True,
) -> Route:
    return Route(
        method="post",
        path=path,
        summary=summary,
        request=request,
        response=response,
        secured=secured,
    )


def _get(
    path: str,
    summary: str,
    response: type[WireObject] | None,
    query: type[WireMap] | None = None,
    *,
    media_type: str = JSON,
    secured: bool = False,
) -> Route:
    return Route(
        method="get",
        path=path,
        summary=summary,
        query=query,
        response=response,
        media_type=media_type,
        secured=secured,
    )


ROUTES: Final = (
    _post(
        "/v1/submit", "Admit one message; its receipt, or why not",
        envelope.SubmitRequest, envelope.SubmitResponse, secured=False,
    ),
    _post(
        "/v1/submit_batch", "Admit messages in order, each by itself",
        envelope.BatchRequest, envelope.BatchResponse, secured=False,
    ),
    _post(
        "/v1/stream", "Read a page of a label",
        envelope.StreamRequest, envelope.StreamResponse,
    ),
    _post(
        "/v1/receipt", "The receipt of a place",
        envelope.ReceiptRequest, envelope.ReceiptResponse,
    ),
    _post(
        "/v1/proof", "That a place was the last of its label",
        envelope.ProofRequest, envelope.ProofResponse,
    ),
    _post(
        "/v1/checkpoint", "The checkpoint at a size; made for a managing principal",
        envelope.CheckpointRequest, envelope.CheckpointResponse,
    ),
    _post(
        "/tooling/authorize", "Make a capability known; a second time changes nothing",
        CapToken, tooling.AuthorizeResponse, secured=False,
    ),
    _get(
        "/tooling/capability", "What the hub knows of a capability",
        tooling.CapabilityResponse, tooling.CapabilityQuery,
    ),
    _get("/tooling/status", "Identity, time, limits and state", tooling.StatusResponse),
    _get("/tooling/streams", "Streams by name", tooling.StreamsResponse, secured=True),
    _post(
        "/tooling/streams", "Register a stream; for a managing principal",
        tooling.RegisterRequest, tooling.StreamsResponse,
    ),
    _post(
        "/tooling/inclusion", "That a leaf stands in a later size",
        tooling.InclusionRequest, tooling.InclusionResponse,
    ),
    _post(
        "/tooling/consistency", "That a size extends another; an empty range proof",
        tooling.ConsistencyRequest, tooling.RangeProofResponse,
    ),
    _post(
        "/tooling/range_proof", "That a run of leaves stands in a later size",
        tooling.RangeProofRequest, tooling.RangeProofResponse,
    ),
    _get(
        "/tooling/checkpoint_latest", "The last checkpoint of a label",
        envelope.CheckpointResponse, tooling.CheckpointLatestQuery, secured=True,
    ),
    _get(
        "/tooling/checkpoint_range", "Checkpoints of a label in order",
        tooling.CheckpointRangeResponse, tooling.CheckpointRangeQuery, secured=True,
    ),
    _post(
        "/tooling/recorder_checkpoint",
        "One signed document over the ends of all product streams; for a managing principal",
        tooling.RecorderCheckpointRequest, tooling.RecorderCheckpointResponse,
    ),
    _get(
        "/tooling/recorder_checkpoint_latest", "The last recorder checkpoint",
        tooling.RecorderCheckpointResponse, secured=True,
    ),
    _get(
        "/tooling/recorder_checkpoints", "Recorder checkpoints in order",
        tooling.RecorderCheckpointsResponse, tooling.RecorderCheckpointsQuery, secured=True,
    ),
    _post(
        "/tooling/locate", "Places of a leaf, or the first place not before a time",
        tooling.LocateRequest, tooling.LocateResponse,
    ),
    _post(
        "/tooling/report_equivocation", "Two receipts of this hub that contradict each other",
        tooling.EquivocationReport, tooling.EquivocationResponse, secured=False,
    ),
    _get("/healthz", "That a worker reads the log", tooling.HealthResponse),
    _get("/readyz", "That the hub takes messages", tooling.ReadyResponse),
    _get(
        "/metrics", "Prometheus text; for this host or a managing principal",
        None, media_type=TEXT, secured=True,
    ),
    _get("/openapi.json", "This document", None),
)  # fmt: skip
