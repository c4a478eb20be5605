"""A real time-stamping authority: certificates and replies by OpenSSL, behind HTTP."""

from __future__ import annotations

import datetime as dt
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

POLICY = "1.2.3.4.1"
_CONFIG = """
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[root]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
[middle]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[stamping]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,timeStamping
[serving]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = critical,serverAuth
[tsa]
serial = {folder}/serial
signer_cert = {folder}/signer.pem
certs = {folder}/middle.pem
signer_key = {folder}/signer.key
signer_digest = sha256
default_policy = {policy}
other_policies = 1.2.3.4.2
digests = sha256, sha512
accuracy = secs:1
ordering = yes
tsa_name = yes
ess_cert_id_alg = sha256
"""


@dataclass(frozen=True)
class Authority:
    """A root, an authority below it, and the certificate that stamps."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, name: str, *, signer: str = "stamping", days: int = 900) -> Any:
        config = _CONFIG.format(name=name, folder=folder, policy=POLICY)
        (folder / "tsa.cnf").write_text(config)
        (folder / "serial").write_text("01\n")
        authority = cls(folder)
        authority._root(f"/CN={name} Root")
        authority._issue("middle", f"/CN={name} Middle", "root", "middle", 3_000)
        authority._issue("signer", f"/CN={name}", "middle", signer, days)
        return authority

    @property
    def chain(self) -> list[bytes]:
        """Everything that a user configures."""
        return [self.pem(name) for name in ("signer", "middle", "root")]

    def pem(self, name: str) -> bytes:
        return (self.folder / f"{name}.pem").read_bytes()

    def renewed(self, folder: Path) -> Any:
        """The same authority with a new certificate to stamp with."""
        result = self.copied(folder)
        result._issue("signer", "/CN=Renewed TSA", "middle", "stamping", 900)
        return result

    def copied(self, folder: Path) -> Any:
        for file in self.folder.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        text = (folder / "tsa.cnf").read_text().replace(str(self.folder), str(folder))
        (folder / "tsa.cnf").write_text(text)
        return Authority(folder)

    def valid_between(self, folder: Path, start: int, end: int) -> Any:
        """The same authority, whose certificate is valid in these seconds only."""
        result = self.copied(folder)
        old = x509.load_pem_x509_certificate(result.pem("signer"))
        issuer = load_pem_private_key((folder / "middle.key").read_bytes(), None)
        assert isinstance(issuer, RSAPrivateKey | EllipticCurvePrivateKey)
        builder = (
            x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), old.serial_number)
            .not_valid_before(dt.datetime.fromtimestamp(start, dt.UTC))
            .not_valid_after(dt.datetime.fromtimestamp(end, dt.UTC))
        )
        for extension in old.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        certificate = builder.sign(issuer, SHA256()).public_bytes(Encoding.PEM)
        (folder / "signer.pem").write_bytes(certificate)
        return result

    def reply(self, query: bytes) -> bytes:
        (self.folder / "query.tsq").write_bytes(query)
        self._openssl(
            "ts", "-reply", "-config", "tsa.cnf", "-section", "tsa",
            "-queryfile", "query.tsq", "-out", "reply.tsr",
        )  # fmt: skip
        return (self.folder / "reply.tsr").read_bytes()

    def _root(self, subject: str) -> None:
        self._key("root")
        self._openssl(
            "req", "-new", "-x509", "-key", "root.key", "-config", "tsa.cnf", "-extensions",
            "root", "-days", "3650", "-subj", subject, "-out", "root.pem",
        )  # fmt: skip

    def _issue(self, name: str, subject: str, issuer: str, extensions: str, days: int) -> None:
        self._key(name)
        self._openssl(
            "req", "-new", "-key", f"{name}.key", "-config", "tsa.cnf", "-subj", subject,
            "-out", f"{name}.csr",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", f"{issuer}.pem", "-CAkey",
            f"{issuer}.key", "-CAcreateserial", "-days", str(days), "-extfile", "tsa.cnf",
            "-extensions", extensions, "-out", f"{name}.pem",
        )  # fmt: skip

    def _key(self, name: str) -> None:
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


class TsaServer:
    """``change`` may alter a reply; ``status`` and ``kind`` are what HTTP says of it."""

    def __init__(
        self,
        authority: Authority,
        *,
        change: Callable[[bytes], bytes] = bytes,
        status: int = 200,
        kind: str = "application/timestamp-reply",
    ) -> None:
        self.queries: list[bytes] = []
        one_at_a_time = Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805
                query = handler.rfile.read(int(handler.headers["content-length"]))
                self.queries.append(query)
                assert handler.headers["content-type"] == "application/timestamp-query"
                with one_at_a_time:
                    body = change(authority.reply(query))
                handler.send_response(status)
                handler.send_header("content-type", kind)
                handler.send_header("content-length", str(len(body)))
                handler.end_headers()
                handler.wfile.write(body)

            def log_message(handler, *_: Any) -> None:  # noqa: N805
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/tsr"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
