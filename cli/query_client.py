"""The HTTP client of the query service, with a token or signed requests, and package files."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer

from cli.options import PassphraseFileOption, bearer, passphrase_of, retry_policy, runtime, tls
from recorder.query.package import Package
from veen.client.credentials import Credentials, Principal
from veen.client.transport import Unreachable
from veen.errors import Malformed, Refused, VeenError
from veen.keystore.directory import ClientDir

DEFAULT_API: Final = "http://127.0.0.1:8090"
_PREFIX: Final = "/api/v1/query"
_MOST_WAIT_SEC: Final = 86_400.0
_RESULT_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class QueryRefused(VeenError):
    """A refusal of the query service; ``code`` is its error_code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class QueryApi:
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
            f"{reply.url} answered without JSON: expected a query service at --api"
        ) from error
    return dict(document)


def _refusal(reply: httpx.Response) -> VeenError:
    document = _document(reply)
    code, message = document.get("error_code"), document.get("message")
    if not isinstance(code, str) or not isinstance(message, str):
        return Unreachable(f"{reply.url} answered {reply.status_code} without an error of the API")
    return QueryRefused(code, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """The query service, and the credentials."""

    api: Annotated[
        str,
        typer.Option(
            "--api", envvar="VEEN_QUERY_API", metavar="URL", help="URL of the query service."
        ),
    ] = DEFAULT_API
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Authenticate with this bearer token."),
    ] = None
    client: Annotated[
        Path | None,
        typer.Option("--client", metavar="DIR", help="Authenticate by signing with its key."),
    ] = None
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="NAME", help="Principal to sign as.")
    ] = None
    passphrase_file: PassphraseFileOption = None
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="CA certificate of the service (PEM)."),
    ] = None
    cert: Annotated[
        Path | None,
        typer.Option("--cert", metavar="FILE", help="Client certificate (PEM), for mutual TLS."),
    ] = None
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Its key; default: in --cert.")
    ] = None

    @contextmanager
    def open(self) -> Iterator[QueryApi]:
        with self._http() as http:
            yield QueryApi(http, self._credentials())

    def _http(self) -> httpx.Client:
        try:
            return httpx.Client(
                base_url=self.api,
                verify=self._tls(),
                timeout=min(max(retry_policy().timeout_sec, 30.0), _MOST_WAIT_SEC),
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            raise Refused(f"--api: expected a URL like {DEFAULT_API}: {error}") from error

    def _tls(self) -> ssl.SSLContext:
        """A TLS context for a private authority or those of the system, with a client
        certificate.
        """
        if self.cert is None and self.key is not None:
            raise typer.BadParameter("--key needs --cert FILE")
        context = tls(self.ca) or ssl.create_default_context()
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key, password="")
            except (OSError, ssl.SSLError) as error:
                raise typer.BadParameter(f"--cert {self.cert}: {error}") from error
        return context

    def _credentials(self) -> Credentials:
        if self.client is None:
            return bearer(self.token_file)
        if self.principal is None:
            raise typer.BadParameter("--client needs --principal NAME, the name it signs under")
        directory = ClientDir(self.client.absolute())
        identity = directory.open(passphrase_of(directory, self.passphrase_file))
        around = runtime()
        return Principal(self.principal, identity.client, around.clock, around.random)


def read_package(path: Path) -> Package:
    """Read a package from a file; an error names the file."""
    try:
        return Package.decode(path.read_bytes())
    except Malformed as error:
        raise Malformed(
            f"{path}: expected an evidence package as veen query proof writes it: {error}; fetch "
            "it again"
        ) from error
