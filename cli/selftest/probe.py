"""Raw requests that no client library would send, and the expected responses (spec 8.2, 10.6)."""

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
        """The error envelope: well-formed, with a known code and the HTTP status of that code."""
        if self.status == httpx.codes.OK:
            raise Unexpected("expected an error, but the hub took it")
        try:
            envelope = ErrorEnvelope.decode(self.body)
        except Malformed as error:
            raise Unexpected(
                f"expected an error envelope with status {self.status}, got {error}"
            ) from error
        if envelope.code not in _CODES:
            raise Unexpected(f"expected a code of the specification, got {envelope.code!r}")
        expect(f"status of {envelope.code}", self.status, _CODES[envelope.code].http_status)
        return envelope

    def refused_with(self, failure: Failure) -> ErrorEnvelope:
        """The error envelope, which must be this row of the admission table."""
        envelope = self.refusal()
        detail = envelope.detail or {}
        text = (envelope.code, detail.get("detail_enum"), detail.get("stage"))
        due = (failure.code.value, failure.detail_enum, failure.stage.value)
        expect("refusal", text, due)
        return envelope

    def refused_as(self, code: Code) -> None:
        expect("refusal", self.refusal().code, code.value)

    def receipt(self) -> Receipt:
        if self.status != httpx.codes.OK:
            envelope = self.refusal()
            raise Unexpected(f"expected a receipt, got {envelope.code}: {envelope.message}")
        return SubmitResponse.decode(self.body).receipt


class Probe:
    """A connection to a hub, with or without the token of a reader."""

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
        """The response to a Content-Length of that size before any byte of the body is sent."""
        where = self._http.base_url
        plain = HTTPConnection(where.host, where.port, timeout=self._timeout_sec)
        with closing(plain):
            plain.putrequest("POST", path)
            for name, value in (("Content-Type", CBOR), ("Accept", CBOR)):
                plain.putheader(name, value)
            plain.putheader("Content-Length", str(size))
            plain.endheaders()
            response = plain.getresponse()
            return Reply(response.status, response.read())

    def get(self, path: str, *, token: str | None = None) -> Reply:
        return _reply(self._http.get(path, headers=self._authorization(token)))

    def _authorization(self, token: str | None) -> dict[str, str]:
        bearer = self._token if token is None else token
        return {"Authorization": f"Bearer {bearer}"} if bearer else {}


def submit_request(msg: bytes) -> bytes:
    """A submit request with any bytes as its message."""
    return b"\xa2\x01\x01\x02" + msg


def _reply(value: httpx.Response) -> Reply:
    return Reply(value.status_code, value.content)
