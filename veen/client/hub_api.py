"""The routes of a hub as typed calls; responses are well-formed and not verified yet."""

from __future__ import annotations

from collections.abc import Sequence

from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.client.transport import HubRefused, Transport, refusal
from veen.errors import Malformed, Rejected
from veen.proofs import InclusionProof, MmrProof, RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.wire import api

Result = bytes | Rejected | HubRefused
"""The outcome of a message of a batch: the bytes of a receipt, or an error."""


class HubApi:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def submit(self, msg: bytes) -> Receipt:
        request = api.SubmitRequest(msg=msg)
        return self.transport.post("/v1/submit", request, api.SubmitResponse).receipt

    def submit_batch(self, msgs: Sequence[bytes]) -> list[Result]:
        request = api.encode_messages(msgs)
        answer = self.transport.ask("POST", "/v1/submit_batch", request, api.BatchResponse)
        if len(answer.results) != len(msgs):
            raise Malformed(f"expected {len(msgs)} results, got {len(answer.results)}")
        return [result.receipt or _refusal(result) for result in answer.results]

    def stream(self, request: api.StreamRequest) -> api.StreamResponse:
        return self.transport.post("/v1/stream", request, api.StreamResponse)

    def receipt(self, label: bytes, stream_seq: int) -> Receipt:
        request = api.ReceiptRequest(label=label, stream_seq=stream_seq)
        return self.transport.post("/v1/receipt", request, api.ReceiptResponse).receipt

    def proof(self, label: bytes, stream_seq: int) -> MmrProof:
        request = api.ProofRequest(label=label, stream_seq=stream_seq)
        return self.transport.post("/v1/proof", request, api.ProofResponse).mmr_proof

    def checkpoint(self, label: bytes, upto_seq: int) -> Checkpoint:
        request = api.CheckpointRequest(label=label, upto_seq=upto_seq)
        return self.transport.post("/v1/checkpoint", request, api.CheckpointResponse).checkpoint

    def checkpoint_latest(self, label: bytes) -> Checkpoint:
        path = f"/tooling/checkpoint_latest?label={label.hex()}"
        return self.transport.get(path, api.CheckpointResponse).checkpoint

    def checkpoint_range(self, label: bytes, from_seq: int) -> api.CheckpointRangeResponse:
        path = f"/tooling/checkpoint_range?label={label.hex()}&from_seq={from_seq}"
        return self.transport.get(path, api.CheckpointRangeResponse)

    def recorder_checkpoint(self, profile_id: bytes, *, force: bool = False) -> RecorderCheckpoint:
        """A document over all product streams; the last if none has moved, unless forced."""
        request = api.RecorderCheckpointRequest(profile_id=profile_id, force=force or None)
        return self.transport.post(
            "/tooling/recorder_checkpoint", request, api.RecorderCheckpointResponse
        ).checkpoint

    def recorder_checkpoint_latest(self) -> RecorderCheckpoint:
        path = "/tooling/recorder_checkpoint_latest"
        return self.transport.get(path, api.RecorderCheckpointResponse).checkpoint

    def recorder_checkpoints(
        self, after: int = 0, limit: int = 100
    ) -> api.RecorderCheckpointsResponse:
        """The documents created after ``after``, in order."""
        path = f"/tooling/recorder_checkpoints?after={after}&limit={limit}"
        return self.transport.get(path, api.RecorderCheckpointsResponse)

    def inclusion(self, label: bytes, stream_seq: int, size: int) -> InclusionProof:
        request = api.InclusionRequest(label=label, stream_seq=stream_seq, size=size)
        return self.transport.post("/tooling/inclusion", request, api.InclusionResponse).proof

    def consistency(self, label: bytes, old_size: int, new_size: int) -> RangeProof:
        request = api.ConsistencyRequest(label=label, old_size=old_size, new_size=new_size)
        return self.transport.post("/tooling/consistency", request, api.RangeProofResponse).proof

    def range_proof(self, label: bytes, from_seq: int, to_seq: int, size: int) -> RangeProof:
        request = api.RangeProofRequest(label=label, from_seq=from_seq, to_seq=to_seq, size=size)
        return self.transport.post("/tooling/range_proof", request, api.RangeProofResponse).proof

    def status(self) -> api.StatusResponse:
        return self.transport.get("/tooling/status", api.StatusResponse)

    def streams(self) -> tuple[api.StreamInfo, ...]:
        return self.transport.get("/tooling/streams", api.StreamsResponse).streams

    def authorize(self, token: CapToken) -> api.AuthorizeResponse:
        return self.transport.post("/tooling/authorize", token, api.AuthorizeResponse)

    def capability(self, auth_ref: bytes) -> api.CapabilityResponse:
        path = f"/tooling/capability?auth_ref={auth_ref.hex()}"
        return self.transport.get(path, api.CapabilityResponse)

    def locate(self, request: api.LocateRequest) -> tuple[api.EntryPlace, ...]:
        return self.transport.post("/tooling/locate", request, api.LocateResponse).places

    def report_equivocation(self, first: Receipt, second: Receipt) -> bytes:
        request = api.EquivocationReport(first=first, second=second)
        return self.transport.post(
            "/tooling/report_equivocation", request, api.EquivocationResponse
        ).evidence_id


def _refusal(result: api.BatchResult) -> Rejected | HubRefused:
    if result.error is None:
        raise Malformed("batch result: expected a receipt or an error, got neither")
    return refusal(result.error)
