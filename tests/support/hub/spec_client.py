"""A second client of the hub, written from the specification; nothing of ours is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cbor2
import httpx
from nacl.signing import SigningKey

from support.hub.spec_objects import (
    Mmr,
    Writer,
    auth_ref,
    h,
    label_of,
    leaf_hash,
    signed_by,
    verify_proof,
)

CBOR = "application/cbor"


@dataclass
class Log:
    """What a reader has verified of one label so far."""

    label: bytes
    hub_pks: list[bytes]
    mmr: Mmr = field(default_factory=Mmr)
    entries: list[tuple[list[Any], list[Any]]] = field(default_factory=list)

    def add(self, msg: list[Any], receipt: list[Any]) -> None:
        assert (msg[2], msg[7]) == (self.label, h(msg[8]))
        assert signed_by(msg[3], msg[9], msg[:9])
        leaf = leaf_hash(msg)
        root = self.mmr.append(leaf)
        assert receipt[:5] == [1, self.label, self.mmr.size, leaf, root]
        assert any(signed_by(pk, receipt[6], receipt[:6]) for pk in self.hub_pks)
        self.entries.append((msg, receipt))


class Refused(Exception):
    def __init__(self, status: int, error: dict[int, Any]) -> None:
        super().__init__(f"{status} {error}")
        self.status = status
        self.code = error[2]
        self.detail = error.get(4, {})
        self.retry_after = error.get(5)

    @property
    def reason(self) -> str:
        return f"{self.code}/{self.detail.get('detail_enum', '')}"


class Client:
    """Talks to one hub whose key it trusts on first use; a thread has its own."""

    def __init__(self, url: str, *, tls: Any = True, timeout: float = 30) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, verify=tls, timeout=timeout, trust_env=False)
        self.status = self.http.get("/tooling/status").raise_for_status().json()
        self.hub_id = bytes.fromhex(self.status["hub_id"])
        self.hub_pks = [bytes.fromhex(item["hub_pk"]) for item in self.status["hub_keys"]]

    def writer(self, signer: SigningKey, stream: str, **more: Any) -> Writer:
        return Writer(signer, label_of(self.hub_id, stream), **more)

    def log(self, label: bytes) -> Log:
        return Log(label, self.hub_pks)

    def post(self, path: str, body: dict[int, Any]) -> dict[int, Any]:
        reply = self.http.post(path, content=cbor2.dumps(body), headers={"Content-Type": CBOR})
        assert reply.headers["Content-Type"] == CBOR
        answer = cbor2.loads(reply.content)
        assert cbor2.dumps(answer) == reply.content, "the answer is not deterministic CBOR"
        if reply.status_code != httpx.codes.OK:
            raise Refused(reply.status_code, answer)
        result: dict[int, Any] = answer
        return result

    def submit(self, msg: list[Any]) -> list[Any]:
        """The receipt, verified as far as it stands alone."""
        receipt = self.post("/v1/submit", {1: 1, 2: msg})[2]
        self.check(msg, receipt)
        result: list[Any] = receipt
        return result

    def submit_batch(self, msgs: list[list[Any]]) -> list[list[Any] | Refused]:
        results = self.post("/v1/submit_batch", {1: 1, 2: msgs})[2]
        assert len(results) == len(msgs)
        for msg, result in zip(msgs, results, strict=True):
            if 1 in result:
                self.check(msg, result[1])
        return [result[1] if 1 in result else Refused(0, result[2]) for result in results]

    def check(self, msg: list[Any], receipt: list[Any]) -> None:
        assert (receipt[1], receipt[3]) == (msg[2], leaf_hash(msg))
        assert any(signed_by(pk, receipt[6], receipt[:6]) for pk in self.hub_pks)

    def authorize(self, token: dict[int, Any]) -> dict[int, Any]:
        """The answer, whose receipt anchors issued_at: {2: auth_ref, 3: issued_at, 5: receipt}."""
        answer = self.post("/tooling/authorize", token)
        assert answer[2] == auth_ref(token)
        assert answer[3] == answer[5][5]
        assert any(signed_by(pk, answer[5][6], answer[5][:6]) for pk in self.hub_pks)
        return answer

    def receipt(self, label: bytes, seq: int) -> list[Any]:
        result: list[Any] = self.post("/v1/receipt", {1: 1, 2: label, 3: seq})[2]
        return result

    def proof(self, label: bytes, seq: int) -> dict[int, Any]:
        result: dict[int, Any] = self.post("/v1/proof", {1: 1, 2: label, 3: seq})[2]
        return result

    def checkpoint(self, label: bytes, upto_seq: int) -> list[Any]:
        result = self.post("/v1/checkpoint", {1: 1, 2: label, 3: upto_seq})[2]
        assert len(result) in (7, 8)
        assert any(signed_by(pk, result[6], result[:6]) for pk in self.hub_pks)
        answer: list[Any] = result
        return answer

    def read(self, log: Log, max_items: int = 1_000) -> Log:
        """Verify what the label has beyond what was read before, to its end."""
        cursor: int | None = log.mmr.size + 1
        while cursor is not None:
            expected = {1: 1, 2: log.label, 3: 1, 5: max_items, 6: cursor, 7: True, 8: True}
            page = self.post("/v1/stream", expected)
            for item in page[5]:
                assert item[1] == log.mmr.size + 1
                log.add(item[2], item[3])
            if page[5]:
                msg, receipt = log.entries[-1]
                verify_proof(page[7], receipt[4], receipt[2], leaf_hash(msg))
            cursor = page.get(6)
        return log
