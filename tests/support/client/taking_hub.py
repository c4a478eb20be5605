"""A hub of its own making that also takes messages, and signs whatever it is told to sign."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from support.client.lying_hub import LyingHub
from veen.crypto import SigningKey
from veen.msg import Msg
from veen.receipt import issue
from veen.wire.api import BatchRequest, BatchResponse, BatchResult

Say = Callable[[Msg, bytes], BatchResult]


class TakingHub(LyingHub):
    """``say`` turns a message and its honest receipt into what is answered."""

    say: Say | None = None

    def answer(self, target: str, body: bytes) -> tuple[int, bytes]:
        if urlsplit(target).path != "/v1/submit_batch":
            return super().answer(target, body)
        results = tuple(self._take(Msg.decode(raw)) for raw in BatchRequest.decode(body).msgs)
        return 200, BatchResponse(results=results).encode()

    def signed(self, msg: Msg, seq: int, root: bytes, key: SigningKey | None = None) -> BatchResult:
        """A receipt for a message, at a place and with a root of our choosing."""
        raw = issue(
            key or self.key, label=msg.label, stream_seq=seq, leaf=msg.leaf_hash(), root=root,
            hub_ts=self.hub_ts,
        )  # fmt: skip
        return BatchResult(receipt=raw)

    def _take(self, msg: Msg) -> BatchResult:
        log = self.logs[msg.label]
        taken = [receipt for raw, receipt in log.pairs if raw == msg.encode()]
        receipt = taken[0] if taken else log.append(msg, self.key).encode()
        return self.say(msg, receipt) if self.say else BatchResult(receipt=receipt)
