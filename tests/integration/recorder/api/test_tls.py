"""The service behind TLS with client certificates, and commands that speak to it."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextvars import Context
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cli.main import app
from support.recorder import query_certificates, query_world
from veen.client.transport import Unreachable
from veen.errors import VeenError

Asked = Callable[..., Any]
TIMEOUT_SEC = 3


class Site:
    """A service that asks for certificates of one authority, and some that are not of it."""

    def __init__(self, folder: Path, hub: Any) -> None:
        ours = query_certificates.Authority(folder, "ours")
        other = query_certificates.Authority(folder, "other")
        self.ca = ours.pem
        self.cert = ours.issue("server")
        self.known = ours.issue("known")
        self.expired = ours.issue("expired", days=-1)
        self.stranger = other.issue("stranger")
        self.other_ca = other.pem
        cert, key = self.cert
        self.zone = query_world.Zone(
            folder / "zone", hub, tls_cert=str(cert), tls_key=str(key), tls_client_ca=str(ours.pem),
            request_timeout_sec=TIMEOUT_SEC, workers=1, threads=2,
        )  # fmt: skip
        self.zone.scheme, self.zone.tls = "https", self.context(self.known)

    def context(self, shown: tuple[Path, Path] | None, ca: Path | None = None) -> ssl.SSLContext:
        result = ssl.create_default_context(cafile=ca or self.ca)
        if shown is not None:
            result.load_cert_chain(*shown)
        return result


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, start_query_hub: Callable[..., Any],
) -> Iterator[Site]:  # fmt: skip
    """On a hub of its own: its events are not among those that others count."""
    result = Site(tmp_path_factory.mktemp("tls"), start_query_hub())
    with query_world.closing(result.zone) as zone:
        zone.emit("http.request", 5)
        checkpoint = zone.checkpoint()
        zone.start().catch_up(checkpoint)
        yield result


@pytest.fixture
def ask(site: Site, tmp_path: Path) -> Asked:
    """``veen query submit`` as alice, with what a test shows."""
    (tmp_path / "token").write_text(query_world.TOKENS["alice"])

    def run(*words: object, api: str = "") -> Any:
        who = ("--api", api or site.zone.url, "--token-file", tmp_path / "token")
        asked = ("query", "submit", "--stream", "record/app/http", *who, *words, "--json")
        result = Context().run(
            CliRunner().invoke, app, list(map(str, asked)), env={"NO_PROXY": "*"}
        )
        if isinstance(result.exception, VeenError):
            raise result.exception
        return result

    return run


def test_plain_http_is_not_answered(site: Site) -> None:
    plain = site.zone.url.replace("https", "http")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{plain}/healthz", trust_env=False)


def test_without_a_certificate_nothing_is_answered(site: Site) -> None:
    for shown in (None, site.stranger, site.expired):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{site.zone.url}/healthz", trust_env=False, verify=site.context(shown))


def test_an_old_version_of_tls_is_not_spoken(site: Site) -> None:
    old = site.context(site.known)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{site.zone.url}/healthz", trust_env=False, verify=old)


def test_h30_only_aead_suites_are_offered(site: Site) -> None:
    old = site.context(site.known)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", site.zone.port), timeout=30) as line,
        old.wrap_socket(line, server_hostname="127.0.0.1") as spoken,
    ):
        name, version, _ = spoken.cipher() or ("", "", 0)
    assert version == "TLSv1.2"
    assert "GCM" in name or "CHACHA20" in name
    old.set_ciphers("ALL:!AESGCM:!CHACHA20:!AESCCM:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", site.zone.port), timeout=30) as line,
        pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"),
    ):
        old.wrap_socket(line, server_hostname="127.0.0.1")


def test_a_certificate_is_a_gate_and_nobody_by_itself(site: Site) -> None:
    """Who has one is let in to say who they are, by a token or a signature."""
    known = httpx.Client(verify=site.context(site.known), trust_env=False)
    with known:
        assert known.get(f"{site.zone.url}/healthz").status_code == 200
        refused = known.get(f"{site.zone.url}/api/query/status/r-{'0' * 32}")
    assert (refused.status_code, refused.json()["error_code"]) == (401, "unauthorized")


def test_a_command_shows_its_certificate(site: Site, ask: Asked, tmp_path: Path) -> None:
    cert, key = site.known
    document = json.loads(ask("--ca", site.ca, "--cert", cert, "--key", key).stdout)
    assert (document["status"], document["row_count"]) == ("completed", 5)
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    assert json.loads(ask("--ca", site.ca, "--cert", both).stdout)["row_count"] == 5


def test_a_command_without_the_right_certificate_gets_no_answer(site: Site, ask: Asked) -> None:
    for words in ((), ("--cert", site.stranger[0], "--key", site.stranger[1])):
        with pytest.raises(Unreachable):
            ask("--ca", site.ca, *words)


def test_a_command_does_not_believe_another_authority(site: Site, ask: Asked) -> None:
    cert, key = site.known
    with pytest.raises(Unreachable, match="certificate verify failed"):
        ask("--ca", site.other_ca, "--cert", cert, "--key", key)
    with pytest.raises(Unreachable):
        ask(api=site.zone.url.replace("https", "http"))


@pytest.mark.parametrize("words", [("--key",), ("--cert",)])
def test_a_certificate_and_its_key_belong_together(
    site: Site, ask: Asked, words: tuple[str, ...]
) -> None:
    result = ask("--ca", site.ca, words[0], site.known[0])
    assert result.exit_code != 0
    assert "--cert" in str(result.exception) + result.output


def test_half_a_handshake_holds_up_nobody(site: Site) -> None:
    """More lines than threads, each with the beginning of a handshake."""
    lines = [socket.create_connection(("127.0.0.1", site.zone.port), 30) for _ in range(6)]
    try:
        for line in lines:
            line.sendall(b"\x16\x03\x01\x02\x00\x01")
        began = time.monotonic()
        known = site.context(site.known)
        reply = httpx.get(f"{site.zone.url}/healthz", trust_env=False, verify=known, timeout=30)
        assert reply.status_code == 200
        assert time.monotonic() - began < 25
        assert lines[0].recv(100) == b""
    finally:
        for line in lines:
            line.close()


def test_a_certificate_that_is_not_there_is_named_at_the_start(
    make_query_zone: Callable[..., Any], query_hub: Any, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "nowhere.pem")
    zone = make_query_zone(query_hub, tls_cert=nowhere, tls_key=nowhere)
    with pytest.raises(AssertionError, match=r"nowhere\.pem"):
        zone.start()
