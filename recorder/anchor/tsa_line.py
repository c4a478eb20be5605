"""The line to a time-stamping authority: HTTP, as RFC 3161 section 3.4 has it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

import httpx

from recorder.anchor.port import AnchorUnavailable

_QUERY: Final = "application/timestamp-query"
_REPLY: Final = "application/timestamp-reply"
_MAX_BYTES: Final = 2**18


@dataclass(frozen=True, slots=True, kw_only=True)
class TsaLine:
    url: str
    timeout_sec: float = 30.0
    tls: ssl.SSLContext | None = None

    def ask(self, query: bytes) -> bytes:
        """The authority's response, not yet looked at."""
        try:
            return self._exchange(query)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise AnchorUnavailable(
                f"the time-stamping authority {self.url} cannot be reached: {reason}"
            ) from error

    def _exchange(self, query: bytes) -> bytes:
        headers = {"content-type": _QUERY, "accept": _REPLY}
        with (
            httpx.Client(
                timeout=self.timeout_sec, verify=self.tls or True, trust_env=False
            ) as client,
            client.stream("POST", self.url, content=query, headers=headers) as answer,
        ):
            kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            if answer.status_code != httpx.codes.OK or kind != _REPLY:
                raise AnchorUnavailable(
                    f"the time-stamping authority {self.url} answered {answer.status_code} "
                    f"{kind or 'without a type'}, which is no time stamp"
                )
            return self._body(answer)

    def _body(self, answer: httpx.Response) -> bytes:
        found = b""
        for piece in answer.iter_bytes():
            found += piece
            if len(found) > _MAX_BYTES:
                raise AnchorUnavailable(f"{self.url} sent more than {_MAX_BYTES} bytes")
        return found
