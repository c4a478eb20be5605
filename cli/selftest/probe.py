"""Raw requests that no client library would send, and the expected answers (spec 8.2, 10.6)."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Final, Self

import httpx

from cli.selftest.samples import Unexpected, expect
from veen.errors import Code, Failure, Malformed
from veen.receipt import Receipt
from veen.wire.api import ErrorEnvelope, SubmitResponse

CBOR: Final = "application/cbor"
_CODES: Final = {item.value: item for item in Code}


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes = field(repr=False)

    def refusal(self) -> ErrorEnvelope:
        """The error in it: well-formed, of a known code, with the status of that code."""
        if self.status == httpx.codes.OK:
            raise Unexpected("expected an error, but the hub took it")
        try:
            envelope = ErrorEnvelope.decode(self.body)
        except Malformed as error:
            raise Unexpected(
                f"expected an error envelope with status {self.status}, found {error}"
            ) from error
        if envelope.code not in _CODES:
            raise Unexpected(f"expected a code of the specification, found {envelope.code!r}")
        expect(f"status of {envelope.code}", self.status, _CODES[envelope.code].http_status)
        return envelope

    def refused_with(self, failure: Failure) -> ErrorEnvelope:
        """The error in it, which must be this row of the admission table."""
        result = self.refusal()
        detail = result.detail or {}
        text = (result.code, detail.get("detail_enum"), detail.get("stage"))
        due = (failure.code.value, failure.detail_enum, failure.stage.value)
        expect("refusal", text, due)
        return result

    def refused_as(self, code: Code) -> None:
        expect("refusal", self.refusal().code, code.value)

    def receipt(self) -> Receipt:
        if self.status != httpx.codes.OK:
            result = self.refusal()
            raise Unexpected(f"expected a receipt, found {result.code}: {result.message}")
        return SubmitResponse.decode(self.body).receipt


class Probe:
    """One connection to a hub, with or without a reader's token."""

    def __init__(self, url: str, token: str, timeout_sec: float) -> None:
        self._token = token
        self._timeout_sec = timeout_sec
        self._http = httpx.Client(
            base_url=url, timeout=timeout_sec, trust_env=False, verify=False,  # noqa: S501 - no TLS
            headers={"Accept": CBOR},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def submit(self, msg: bytes) -> Reply:
        return self.post("/v1/submit", submit_request(msg))

    def post(self, path: str, body: bytes, *, media: str = CBOR, token: str | None = None) -> Reply:
        headers = {"Content-Type": media, **self._authorization(token)}
        return _reply(self._http.post(path, content=body, headers=headers))

    def announce(self, path: str, size: int) -> Reply:
        """What is answered to a body of that size of which no byte has come yet."""
        where = self._http.base_url
        plain = HTTPConnection(where.host, where.port, timeout=self._timeout_sec)
        with closing(plain):
            plain.putrequest("POST", path)
            for name, value in (("Content-Type", CBOR), ("Accept", CBOR)):
                plain.putheader(name, value)
            plain.putheader("Content-Length", str(size))
            plain.endheaders()
            result = plain.getresponse()
            return Reply(result.status, result.read())

    def get(self, path: str, *, token: str | None = None) -> Reply:
        return _reply(self._http.get(path, headers=self._authorization(token)))

    def _authorization(self, token: str | None) -> dict[str, str]:
        result = self._token if token is None else token
        return {"Authorization": f"Bearer {result}"} if result else {}


def submit_request(msg: bytes) -> bytes:
    """The request around a message, whatever the message is."""
    return b"\xa2\x01\x01\x02" + msg


def _reply(value: httpx.Response) -> Reply:
    return Reply(value.status_code, value.content)
