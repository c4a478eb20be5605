"""Certificates for the tests of TLS: an authority, and whom it speaks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM
_KEYS = x509.KeyUsage(
    digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
    key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
    decipher_only=False,
)  # fmt: skip


class Authority:
    """``name.pem`` in a folder; what it issues is there too, with its keys."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.pem = folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _begun(self._name, self._name, self._key)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        builder = builder.add_extension(_KEYS, critical=True)
        self.pem.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def issue(self, name: str, *, days: int = 1) -> tuple[Path, Path]:
        """The files of a certificate and its key; with negative days, one of the past."""
        key = ec.generate_private_key(ec.SECP256R1())
        host = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = _begun(_named(name), self._name, key, days)
        builder = builder.add_extension(host, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        builder = builder.add_extension(own, critical=False)
        cert, secret = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        plain = serialization.NoEncryption()
        secret.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, plain))
        return cert, secret


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
) -> x509.CertificateBuilder:
    now = datetime.now(tz=UTC)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    serial = x509.random_serial_number()
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), serial)
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(own, critical=False)
    )
