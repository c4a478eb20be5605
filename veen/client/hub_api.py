"""The routes of a hub, each as a typed call; what comes back is well-formed and not yet trusted."""

from __future__ import annotations

from collections.abc import Sequence

from veen import envelope, tooling
from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.client.errors import HubRefused, refusal
from veen.client.transport import Transport
from veen.errors import Malformed, Rejected
from veen.inclusion import InclusionProof
from veen.proof import MmrProof
from veen.range_proof import RangeProof
from veen.receipt import Receipt
from veen.recorder_checkpoint import RecorderCheckpoint

Result = bytes | Rejected | HubRefused
"""What became of one message of a batch: the bytes of a receipt, or why not."""


class HubApi:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def submit(self, msg: bytes) -> Receipt:
        request = envelope.SubmitRequest(msg=msg)
        return self.transport.post("/v1/submit", request, envelope.SubmitResponse).receipt

    def submit_batch(self, msgs: Sequence[bytes]) -> list[Result]:
        request = envelope.BatchRequest(msgs=tuple(msgs))
        answer = self.transport.post("/v1/submit_batch", request, envelope.BatchResponse)
        if len(answer.results) != len(msgs):
            raise Malformed(f"{len(answer.results)} results for {len(msgs)} messages")
        return [_result(one) for one in answer.results]

    def stream(self, request: envelope.StreamRequest) -> envelope.StreamResponse:
        return self.transport.post("/v1/stream", request, envelope.StreamResponse)

    def receipt(self, label: bytes, stream_seq: int) -> Receipt:
        request = envelope.ReceiptRequest(label=label, stream_seq=stream_seq)
        return self.transport.post("/v1/receipt", request, envelope.ReceiptResponse).receipt

    def proof(self, label: bytes, stream_seq: int) -> MmrProof:
        request = envelope.ProofRequest(label=label, stream_seq=stream_seq)
        return self.transport.post("/v1/proof", request, envelope.ProofResponse).mmr_proof

    def checkpoint(self, label: bytes, upto_seq: int) -> Checkpoint:
        request = envelope.CheckpointRequest(label=label, upto_seq=upto_seq)
        return self.transport.post(
            "/v1/checkpoint", request, envelope.CheckpointResponse
        ).checkpoint

    def checkpoint_latest(self, label: bytes) -> Checkpoint:
        path = f"/tooling/checkpoint_latest?label={label.hex()}"
        return self.transport.get(path, envelope.CheckpointResponse).checkpoint

    def checkpoint_range(self, label: bytes, from_seq: int) -> tooling.CheckpointRangeResponse:
        path = f"/tooling/checkpoint_range?label={label.hex()}&from_seq={from_seq}"
        return self.transport.get(path, tooling.CheckpointRangeResponse)

    def recorder_checkpoint(self, profile_id: bytes, *, force: bool = False) -> RecorderCheckpoint:
        """One over all product streams; the last again if none has moved and none is forced."""
        request = tooling.RecorderCheckpointRequest(profile_id=profile_id, force=force or None)
        return self.transport.post(
            "/tooling/recorder_checkpoint", request, tooling.RecorderCheckpointResponse
        ).checkpoint

    def recorder_checkpoint_latest(self) -> RecorderCheckpoint:
        path = "/tooling/recorder_checkpoint_latest"
        return self.transport.get(path, tooling.RecorderCheckpointResponse).checkpoint

    def recorder_checkpoints(
        self, after: int = 0, limit: int = 100
    ) -> tooling.RecorderCheckpointsResponse:
        """Those made later than ``after``, in order."""
        path = f"/tooling/recorder_checkpoints?after={after}&limit={limit}"
        return self.transport.get(path, tooling.RecorderCheckpointsResponse)

    def inclusion(self, label: bytes, stream_seq: int, size: int) -> InclusionProof:
        request = tooling.InclusionRequest(label=label, stream_seq=stream_seq, size=size)
        return self.transport.post("/tooling/inclusion", request, tooling.InclusionResponse).proof

    def consistency(self, label: bytes, old_size: int, new_size: int) -> RangeProof:
        request = tooling.ConsistencyRequest(label=label, old_size=old_size, new_size=new_size)
        return self.transport.post(
            "/tooling/consistency", request, tooling.RangeProofResponse
        ).proof

    def range_proof(self, label: bytes, from_seq: int, to_seq: int, size: int) -> RangeProof:
        request = tooling.RangeProofRequest(
            label=label, from_seq=from_seq, to_seq=to_seq, size=size
        )
        return self.transport.post(
            "/tooling/range_proof", request, tooling.RangeProofResponse
        ).proof

    def status(self) -> tooling.StatusResponse:
        return self.transport.get("/tooling/status", tooling.StatusResponse)

    def streams(self) -> tuple[tooling.StreamInfo, ...]:
        return self.transport.get("/tooling/streams", tooling.StreamsResponse).streams

    def authorize(self, token: CapToken) -> tooling.AuthorizeResponse:
        return self.transport.post("/tooling/authorize", token, tooling.AuthorizeResponse)

    def capability(self, auth_ref: bytes) -> tooling.CapabilityResponse:
        path = f"/tooling/capability?auth_ref={auth_ref.hex()}"
        return self.transport.get(path, tooling.CapabilityResponse)

    def locate(self, request: tooling.LocateRequest) -> tuple[tooling.Place, ...]:
        return self.transport.post("/tooling/locate", request, tooling.LocateResponse).places

    def report_equivocation(self, first: Receipt, second: Receipt) -> bytes:
        request = tooling.EquivocationReport(first=first, second=second)
        return self.transport.post(
            "/tooling/report_equivocation", request, tooling.EquivocationResponse
        ).evidence_id


def _result(one: envelope.BatchResult) -> Result:
    if one.receipt is not None:
        return one.receipt
    if one.error is None:
        raise Malformed("a batch result is a receipt or an error")
    return refusal(one.error)
