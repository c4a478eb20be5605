"""The options of commands that use the query service."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import httpx
import typer

from cli.options import PassphraseFileOption, bearer, passphrase_of, retry_policy, runtime, tls
from recorder.query.client import QueryApi
from veen.client.credentials import Credentials, Principal
from veen.errors import Refused
from veen.keystore.directory import ClientDir

DEFAULT_API: Final = "http://127.0.0.1:8090"
_MOST_WAIT_SEC: Final = 86_400.0


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
