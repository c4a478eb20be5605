"""A hub of its own making: a real log under a real key, over real HTTP, that can be told to lie."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from veen import hub_identity, mmr
from veen.captoken import CapToken
from veen.checkpoint import Checkpoint
from veen.crypto import SigningKey
from veen.digest import h
from veen.label import DEFAULT_PROFILE, EpochLabels, Profile, routing_key, stream_id
from veen.limits import Limits
from veen.mmr import EMPTY, Peaks
from veen.msg import Msg
from veen.proofs import InclusionProof, MmrProof, RangeProof, consistency
from veen.receipt import Receipt, issue
from veen.wire import api
from veen.wire.objects import WireObject

NOON = 1_900_000_000
Lie = Callable[[str, Any, Any], Any]
"""From path, request and the honest answer to what is sent instead."""


class NotThere(Exception):
    pass


@dataclass
class TheLog:
    """One label: pairs, nodes, checkpoints; ``pruned`` entries at its start are gone."""

    label: bytes
    epoch: int = 0
    label_prev: bytes | None = None
    pairs: list[tuple[bytes, bytes]] = field(default_factory=list)
    peaks: Peaks = EMPTY
    nodes: list[bytes] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    pruned: int = 0
    hub_ts: int = NOON

    def node(self, height: int, index: int) -> bytes:
        return self.nodes[mmr.position(height, index)]

    def append(self, msg: Msg, key: SigningKey) -> Receipt:
        leaf = msg.leaf_hash()
        self.peaks, completed = mmr.grow(self.peaks, leaf)
        self.nodes += completed
        raw = issue(
            key,
            label=self.label,
            stream_seq=self.peaks.size,
            leaf=leaf,
            root=self.peaks.root(),
            hub_ts=self.hub_ts,
        )
        self.pairs.append((msg.encode(), raw))
        return Receipt.decode(raw)

    def checkpoint(self, key: SigningKey) -> Checkpoint:
        checkpoint = Checkpoint(
            label_prev=self.label if self.checkpoints else (self.label_prev or self.label),
            label_curr=self.label,
            upto_seq=self.peaks.size,
            mmr_root=self.peaks.root(),
            epoch=self.epoch,
        ).signed(key)
        self.checkpoints.append(checkpoint)
        return checkpoint

    def receipt(self, seq: int) -> Receipt:
        if not self.pruned < seq <= self.peaks.size:
            raise NotThere(f"no stream_seq {seq}")
        return Receipt.decode(self.pairs[seq - 1][1])


class LyingHub:
    def __init__(self, name: bytes = b"hub", profile: Profile = DEFAULT_PROFILE) -> None:
        self.key = SigningKey(h(name))
        self.identity = hub_identity.new_identity(self.key.public, NOON - 10**6, "none")
        self.profile = profile
        self.logs: dict[bytes, TheLog] = {}
        self.names: dict[str, bytes] = {}
        self.hub_ts = NOON
        self.lie: Lie | None = None
        self.broken = False
        self.tokens: dict[bytes, CapToken] = {}
        self.asked: list[str] = []
        self.reports: list[api.EquivocationReport] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def labels(self, name: str) -> EpochLabels:
        return EpochLabels(routing_key(self.identity.hub_id), stream_id(name), self.profile)

    def log(self, name: str, epoch: int = 0) -> TheLog:
        """The log of a stream in an epoch, as it stands."""
        labels = self.labels(name)
        label = labels.at(epoch)
        self.names[name] = labels.stream_id
        if label not in self.logs:
            before = labels.at(epoch - 1) if epoch else None
            self.logs[label] = TheLog(label, epoch, before, hub_ts=self.hub_ts)
        return self.logs[label]

    def rotate(self, name: bytes, at: int, overlap_sec: int = 0) -> None:
        new = SigningKey(h(name))
        self.identity = self.identity.rotated(self.key, new.public, at, overlap_sec)
        self.key = new

    def answer(self, target: str, body: bytes) -> tuple[int, bytes]:
        path = urlsplit(target).path
        self.asked.append(path)
        asked, honest = self._honest(path, target, body)
        answer: Any = honest
        if self.lie is not None:
            answer = self.lie(path, asked, answer)
        if isinstance(answer, api.ErrorEnvelope):
            return 404 if answer.code == "E.NOT_FOUND" else 403, answer.encode()
        return 200, answer if isinstance(answer, bytes) else answer.encode()

    def _honest(self, path: str, target: str, body: bytes) -> tuple[Any, WireObject]:
        kind, reply = _ROUTES[path]
        asked = kind.decode(body) if kind is not None else _query(target)
        try:
            return asked, reply(self, asked)
        except NotThere as error:
            return asked, api.ErrorEnvelope(code="E.NOT_FOUND", message=str(error))

    def the(self, label: bytes, size: int = 1) -> TheLog:
        log = self.logs.get(label)
        if log is None or not 1 <= size <= log.peaks.size:
            raise NotThere(f"no {size} in {label.hex()}")
        return log

    def status(self, _: object) -> api.StatusResponse:
        profile = api.ProfileStatus(
            profile_id=self.profile.profile_id(), profile=self.profile, epoch=0
        )
        return api.StatusResponse(
            server_version="lying", role="standalone", hub_id=self.identity.hub_id,
            hub_pk=self.identity.current.hub_pk, hub_keys=self.identity.hub_keys,
            profile_ids=(self.profile.profile_id(),), profiles=(profile,), epoch=0,
            hub_ts=self.hub_ts, admission="open", reads="open", stream_scoping="off", features=(),
            limits=api.LimitRegistry(**asdict(Limits())), uptime_sec=0, labels=0,
            peaks_count=0, last_stream_seq=0, last_hub_ts=self.hub_ts, anchoring="none",
            identity_sig=self.identity.signature_by(self.key),
        )  # fmt: skip

    def stream(self, asked: api.StreamRequest) -> api.StreamResponse:
        log = self.the(asked.label)
        end = log.peaks.size if asked.to_seq is None else min(asked.to_seq, log.peaks.size)
        last = min(end, asked.from_seq + (asked.max_items or 1_000) - 1)
        if log.pruned >= asked.from_seq:
            raise NotThere(f"{asked.from_seq} was pruned")
        items = tuple(
            api.StreamItem(stream_seq=seq, msg=msg, receipt=receipt)
            for seq in range(asked.from_seq, last + 1)
            for msg, receipt in [log.pairs[seq - 1]]
        )
        proved = asked.with_mmr_proof and items
        return api.StreamResponse(
            label=log.label,
            from_seq=asked.from_seq,
            to_seq=asked.to_seq,
            items=items,
            next_cursor=last + 1 if last < end else None,
            mmr_proof=MmrProof.build(log, last) if proved else None,
        )

    def receipt(self, asked: api.ReceiptRequest) -> api.ReceiptResponse:
        return api.ReceiptResponse(receipt=self.the(asked.label).receipt(asked.stream_seq))

    def proof(self, asked: api.ProofRequest) -> api.ProofResponse:
        log = self.the(asked.label, asked.stream_seq)
        return api.ProofResponse(mmr_proof=MmrProof.build(log, asked.stream_seq))

    def inclusion(self, asked: api.InclusionRequest) -> api.InclusionResponse:
        log = self.the(asked.label, asked.size)
        proof = InclusionProof.build(log, asked.stream_seq, asked.size)
        return api.InclusionResponse(proof=proof)

    def consistency(self, asked: api.ConsistencyRequest) -> api.RangeProofResponse:
        log = self.the(asked.label, asked.new_size)
        proof = consistency(log, asked.old_size, asked.new_size)
        return api.RangeProofResponse(proof=proof)

    def range_proof(self, asked: api.RangeProofRequest) -> api.RangeProofResponse:
        log = self.the(asked.label, asked.size)
        proof = RangeProof.build(log, asked.from_seq, asked.to_seq, asked.size)
        return api.RangeProofResponse(proof=proof)

    def checkpoint(self, asked: api.CheckpointRequest) -> api.CheckpointResponse:
        log = self.the(asked.label, asked.upto_seq)
        result = (
            checkpoint for checkpoint in log.checkpoints if checkpoint.upto_seq == asked.upto_seq
        )
        checkpoint = next(result, None) or log.checkpoint(self.key)
        return api.CheckpointResponse(checkpoint=checkpoint)

    def checkpoint_latest(self, asked: dict[str, str]) -> api.CheckpointResponse:
        log = self.the(bytes.fromhex(asked["label"]))
        if not log.checkpoints:
            raise NotThere("no checkpoint")
        return api.CheckpointResponse(checkpoint=log.checkpoints[-1])

    def checkpoint_range(self, asked: dict[str, str]) -> api.CheckpointRangeResponse:
        log = self.the(bytes.fromhex(asked["label"]))
        start = int(asked["from_seq"])
        result = tuple(checkpoint for checkpoint in log.checkpoints if checkpoint.upto_seq >= start)
        more = result[1].upto_seq + 1 if len(result) > 2 else None
        return api.CheckpointRangeResponse(checkpoints=result[:2], next_from_seq=more)

    def streams(self, _: object) -> api.StreamsResponse:
        return api.StreamsResponse(streams=tuple(self._info(name) for name in self.names))

    def _info(self, name: str) -> api.StreamInfo:
        labels = self.labels(name)
        logs = [log for log in self.logs.values() if log.label == labels.at(log.epoch)]
        return api.StreamInfo(
            name=name, stream_id=labels.stream_id, profile_id=self.profile.profile_id(),
            epoch_sec=self.profile.epoch_sec, pad_block=self.profile.pad_block,
            labels=tuple(
                api.LabelInfo(
                    label=log.label, epoch=log.epoch, last_stream_seq=log.peaks.size,
                    last_hub_ts=log.hub_ts, closed=False,
                )
                for log in logs
            ),
        )  # fmt: skip

    def capability(self, asked: dict[str, str]) -> api.CapabilityResponse:
        token = self.tokens.get(bytes.fromhex(asked["auth_ref"]))
        if token is None:
            raise NotThere("no such capability")
        return api.CapabilityResponse(
            token=token, issued_at=0, expires_at=self.hub_ts, hub_ts=self.hub_ts
        )

    def report(self, asked: api.EquivocationReport) -> api.EquivocationResponse:
        self.reports.append(asked)
        return api.EquivocationResponse(evidence_id=h(asked.encode()))

    def _handler(hub: LyingHub) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if hub.broken:
                    self.close_connection = True
                    return
                status, raw = hub.answer(self.path, body)
                head = (
                    f"HTTP/1.1 {status} x\r\nContent-Type: application/cbor\r\n"
                    f"Content-Length: {len(raw)}\r\n\r\n"
                )
                self.wfile.write(head.encode() + raw)

            do_GET = do_POST  # noqa: N815 - the name that http.server calls

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def fork(hub: LyingHub, name: str, size: int, key: SigningKey | None = None) -> TheLog:
    """Another history from ``size`` on, signed by the same key, in place of what was there."""
    old = hub.log(name)
    new = replace(TheLog(old.label, old.epoch, old.label_prev), hub_ts=old.hub_ts)
    for raw, _ in old.pairs[:size]:
        new.append(Msg.decode(raw), key or hub.key)
    hub.logs[old.label] = new
    return new


def _query(target: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}


_ROUTES: dict[str, tuple[type[WireObject] | None, Callable[[LyingHub, Any], WireObject]]] = {
    "/tooling/status": (None, LyingHub.status),
    "/tooling/streams": (None, LyingHub.streams),
    "/tooling/checkpoint_latest": (None, LyingHub.checkpoint_latest),
    "/tooling/checkpoint_range": (None, LyingHub.checkpoint_range),
    "/tooling/capability": (None, LyingHub.capability),
    "/v1/checkpoint": (api.CheckpointRequest, LyingHub.checkpoint),
    "/v1/stream": (api.StreamRequest, LyingHub.stream),
    "/v1/receipt": (api.ReceiptRequest, LyingHub.receipt),
    "/v1/proof": (api.ProofRequest, LyingHub.proof),
    "/tooling/inclusion": (api.InclusionRequest, LyingHub.inclusion),
    "/tooling/consistency": (api.ConsistencyRequest, LyingHub.consistency),
    "/tooling/range_proof": (api.RangeProofRequest, LyingHub.range_proof),
    "/tooling/report_equivocation": (api.EquivocationReport, LyingHub.report),
}
