"""The HTTP client of the query service, and the files of proof packages."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx

from recorder.query.package import Package
from veen.client.credentials import Credentials
from veen.client.transport import Unreachable
from veen.errors import Malformed, Refused, VeenError

_PREFIX: Final = "/api/v1/query"
_RESULT_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_FIRST_PAUSE_SEC: Final = 0.1
_LONGEST_PAUSE_SEC: Final = 5.0
_PACKAGE_SEC: Final = 60.0


class QueryApiRefused(VeenError):
    """A refusal of the query service; ``code`` is its error_code."""

    error_code: ClassVar[str] = "QUERY_REFUSED"

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class QueryApi:
    """The routes of the Query API, with the credentials of a requester."""

    def __init__(self, http: httpx.Client, credentials: Credentials) -> None:
        self._http = http
        self._credentials = credentials

    def submit(self, descriptor: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(descriptor).encode()
        return _document(self._ask("POST", "/submit", body))

    def status(self, result_id: str) -> dict[str, Any]:
        return _document(self._ask("GET", f"/status/{_named(result_id)}"))

    def page(self, result_id: str, offset: int, limit: int) -> dict[str, Any]:
        return _document(
            self._ask("GET", f"/result/{_named(result_id)}?offset={offset}&limit={limit}")
        )

    def proof(self, result_id: str) -> bytes:
        return self._ask("GET", f"/proof/{_named(result_id)}").content

    def _ask(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        url = f"{self._http.base_url}".rstrip("/") + _PREFIX + path
        headers = self._credentials.headers(method, url, body)
        if body:
            headers = {**headers, "Content-Type": "application/json"}
        try:
            reply = self._http.request(method, url, content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unreachable(f"{self._http.base_url} did not answer: {error}") from error
        if reply.is_success:
            return reply
        raise _refusal(reply)


def _named(result_id: str) -> str:
    if _RESULT_ID.fullmatch(result_id) is None:
        raise Refused(f"{result_id!a}: expected a result_id like r-0123, without spaces")
    return result_id


def _document(reply: httpx.Response) -> dict[str, Any]:
    try:
        document = reply.json()
    except ValueError as error:
        raise Unreachable(
            f"{reply.url} answered without JSON: expected a query service there"
        ) from error
    return dict(document)


def _refusal(reply: httpx.Response) -> VeenError:
    document = _document(reply)
    code, message = document.get("error_code"), document.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        return Unreachable(f"{reply.url} answered {reply.status_code} without an error of the API")
    return QueryApiRefused(code, message)


def await_result(api: QueryApi, result_id: str, sleep: Callable[[float], None]) -> None:
    """Poll with backoff until a query has completed; QueryApiRefused if it failed."""
    pause = _FIRST_PAUSE_SEC
    while True:
        status = api.status(result_id)
        if status["status"] == "completed":
            return
        if status["status"] == "failed":
            raise QueryApiRefused(str(status["error_code"]), str(status["message"]))
        sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SEC)


def fetch_package(api: QueryApi, result_id: str, sleep: Callable[[float], None]) -> bytes:
    """Fetch the proof package, with retry and backoff until its digest is indexed."""
    deadline, pause = time.monotonic() + _PACKAGE_SEC, _FIRST_PAUSE_SEC
    while True:
        try:
            return api.proof(result_id)
        except QueryApiRefused as error:
            if error.code != "result_not_ready" or time.monotonic() > deadline:
                raise
        sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SEC)


def read_package(path: Path) -> Package:
    """Read a package from a file; an error names the file."""
    try:
        return Package.decode(path.read_bytes())
    except Malformed as error:
        raise Malformed(
            f"{path}: expected a proof package as veen query proof writes it: {error}; fetch "
            "it again"
        ) from error
