"""A time-stamping authority: whom we believe, and what a response of it proves (RFC 3161)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import rfc3161_client as rfc3161
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from veen.digest import h
from veen.errors import Untrusted, VeenError

_SHA256: Final = x509.ObjectIdentifier("2.16.840.1.101.3.4.2.1")
_GRANTED: Final = bytes.fromhex("3003020100")
"""PKIStatusInfo of a plain yes; the signature of a response does not cover it."""
_HEAD_BYTES: Final = 16
_SIGNED_DATA, _SIGNER_INFO = 3, 1
"""Versions that CMS gives to signed data that is no plain data, and to its signer."""


class BadTsa(VeenError):
    """Certificates or a policy by which no authority can be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What an authority has signed: that it saw these bytes by ``time``, in seconds."""

    time: int
    signer: str
    serial: int
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The certificates of an authority. ``signers`` are pinned: nobody else may have signed."""

    roots: tuple[x509.Certificate, ...]
    intermediates: tuple[x509.Certificate, ...]
    signers: tuple[x509.Certificate, ...]
    policy: str | None

    def verify(self, response: bytes, message: bytes, nonce: int) -> Stamp:
        """Refuse unless the authority stamped this message under this nonce; its certificates
        must have been valid then, not now."""
        try:
            return self._stamp(_decoded(response), message, nonce)
        except (rfc3161.VerificationError, ValueError, KeyError) as error:
            # The library reads parts of a response only when asked for, and raises what it likes.
            raise Untrusted(f"the time stamp does not hold: {error}") from error

    def _stamp(self, found: rfc3161.TimeStampResponse, message: bytes, nonce: int) -> Stamp:
        signer, info = self._signer(found), found.tst_info
        self._verifier(signer, nonce).verify(found, h(message))
        if info.message_imprint.hash_algorithm != _SHA256:
            raise Untrusted("the time stamp is not over SHA-256")
        return Stamp(
            time=int(info.gen_time.timestamp()),
            signer=signer.subject.rfc4514_string(),
            serial=info.serial_number,
            policy=info.policy.dotted_string,
        )

    def _signer(self, found: rfc3161.TimeStampResponse) -> x509.Certificate:
        """The certificate that the response says it was signed with, if it is one of ours.

        Nothing that a response carries goes unchecked: a certificate in it is one of ours, too.
        """
        infos = tuple(found.signed_data.signer_infos)
        names = {(one.issuer, one.serial_number) for one in infos}
        signer = next(
            (one for one in self.signers if (one.issuer, one.serial_number) in names), None
        )
        if signer is None or len(infos) != 1:
            who = "; ".join(f"serial {one.serial_number:x}" for one in infos) or "nobody"
            raise Untrusted(
                f"the time stamp is signed by {who}, not by a pinned certificate of the authority. "
                "If the authority has a new certificate, add it beside the old one"
            )
        known = {one.public_bytes(Encoding.DER) for one in self._all()}
        if not found.signed_data.certificates <= known:
            raise Untrusted("the time stamp carries a certificate that is not of this authority")
        return signer

    def _all(self) -> tuple[x509.Certificate, ...]:
        return (*self.roots, *self.intermediates, *self.signers)

    def _verifier(self, signer: x509.Certificate, nonce: int) -> rfc3161.Verifier:
        return rfc3161.VerifierBuilder(
            policy_id=x509.ObjectIdentifier(self.policy) if self.policy else None,
            tsa_certificate=signer,
            intermediates=list(self.intermediates),
            roots=list(self.roots),
            nonce=nonce,
        ).build()


def trust_of(pems: Sequence[bytes], policy: str | None = None) -> Trust:
    """Sort certificates by what they are: roots, authorities between, and those that sign."""
    try:
        found = [one for pem in pems for one in x509.load_pem_x509_certificates(pem)]
        if policy is not None:
            x509.ObjectIdentifier(policy)
    except ValueError as error:
        raise BadTsa(f"certificates are PEM, and a policy is like 1.2.3.4: {error}") from error
    trust = Trust(
        roots=tuple(one for one in found if one.issuer == one.subject),
        intermediates=tuple(one for one in found if _issues(one) and one.issuer != one.subject),
        signers=tuple(one for one in found if not _issues(one)),
        policy=policy,
    )
    if not trust.roots or not trust.signers:
        raise BadTsa(
            "give the whole chain of the time-stamping authority: the certificate that it signs "
            "with, and those above it up to the one that is signed by itself"
        )
    return trust


def _issues(certificate: x509.Certificate) -> bool:
    try:
        found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return found.value.ca


def _decoded(response: bytes) -> rfc3161.TimeStampResponse:
    found = rfc3161.decode_timestamp_response(response)
    status = rfc3161.PKIStatus(found.status)
    if status is not rfc3161.PKIStatus.GRANTED:
        words = "; ".join(found.status_string) or "without a word"
        raise Untrusted(f"the authority answered {status.name}: {words}")
    if found.as_bytes() != response or _GRANTED not in response[:_HEAD_BYTES]:
        raise Untrusted("the time stamp response has more in it than a stamp")
    versions = {one.version for one in found.signed_data.signer_infos}
    if found.signed_data.version != _SIGNED_DATA or versions != {_SIGNER_INFO}:
        raise Untrusted("the time stamp response is of another version of CMS")
    return found
