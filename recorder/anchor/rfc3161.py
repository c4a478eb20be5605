"""Anchors that are time stamps of a time-stamping authority (RFC 3161).

Contains the anchor itself, the verification of an authority's response against pinned
certificates, and the HTTP transport of RFC 3161 section 3.4.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import httpx
import rfc3161_client as rfc3161
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

from recorder.anchor.anchors import AnchorProof, AnchorUnavailable, anchor_digest
from veen.digest import h
from veen.errors import Malformed, Untrusted, VeenError
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Version

_SHA256: Final = x509.ObjectIdentifier("2.16.840.1.101.3.4.2.1")
_GRANTED: Final = bytes.fromhex("3003020100")
"""PKIStatusInfo "granted" without details; the signature of a response does not cover it."""
_HEAD_BYTES: Final = 16
_SIGNED_DATA, _SIGNER_INFO = 3, 1
"""CMS versions of signed data whose content type is not id-data, and of its signer."""
KIND: Final = "rfc3161"
_QUERY: Final = "application/timestamp-query"
_REPLY: Final = "application/timestamp-reply"
_MAX_BYTES: Final = 2**18


class BadTsa(VeenError):
    """Certificates or a policy that do not identify an authority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The statement of an authority that it saw a message at ``time``, in seconds."""

    time: int
    signer: str
    serial: int
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TsaTrust:
    """The trusted certificates of an authority; only the pinned ``signers`` may have signed."""

    roots: tuple[x509.Certificate, ...]
    intermediates: tuple[x509.Certificate, ...]
    signers: tuple[x509.Certificate, ...]
    policy: str | None

    def verify(self, response: bytes, message: bytes, nonce: int) -> Stamp:
        """Verify that the authority stamped this message under this nonce.

        Its certificates must have been valid at that time, not now.
        """
        try:
            return self._stamp(_decoded(response), message, nonce)
        except (rfc3161.VerificationError, ValueError, KeyError) as error:
            # The library parses parts of a response lazily and raises several exception types.
            raise Untrusted(f"the time stamp cannot be verified: {error}") from error

    def _stamp(self, response: rfc3161.TimeStampResponse, message: bytes, nonce: int) -> Stamp:
        signer, info = self._signer(response), response.tst_info
        self._verifier(signer, nonce).verify(response, h(message))
        if info.message_imprint.hash_algorithm != _SHA256:
            raise Untrusted("the time stamp: expected one over SHA-256, got another hash")
        return Stamp(
            time=int(info.gen_time.timestamp()),
            signer=signer.subject.rfc4514_string(),
            serial=info.serial_number,
            policy=info.policy.dotted_string,
        )

    def _signer(self, response: rfc3161.TimeStampResponse) -> x509.Certificate:
        """Return the pinned certificate that the response was signed with.

        Every certificate in the response must be one of the authority's.
        """
        infos = tuple(response.signed_data.signer_infos)
        names = {(info.issuer, info.serial_number) for info in infos}
        signer = next(
            (signer for signer in self.signers if (signer.issuer, signer.serial_number) in names),
            None,
        )
        if signer is None or len(infos) != 1:
            who = "; ".join(f"serial {info.serial_number:x}" for info in infos) or "nobody"
            raise Untrusted(
                f"the time stamp: expected a signature by a pinned certificate, got {who}; if the "
                "authority has a new certificate, add it to tsa_certificates"
            )
        known = {certificate.public_bytes(Encoding.DER) for certificate in self._all()}
        if not response.signed_data.certificates <= known:
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


def trust_of(pems: Sequence[bytes], policy: str | None = None) -> TsaTrust:
    """Sort certificates into roots, intermediates and signers."""
    try:
        certificates = [
            certificate for pem in pems for certificate in x509.load_pem_x509_certificates(pem)
        ]
        if policy is not None:
            x509.ObjectIdentifier(policy)
    except ValueError as error:
        raise BadTsa(f"certificates are PEM, and a policy is like 1.2.3.4: {error}") from error
    trust = TsaTrust(
        roots=tuple(
            certificate for certificate in certificates if certificate.issuer == certificate.subject
        ),
        intermediates=tuple(
            certificate
            for certificate in certificates
            if _issues(certificate) and certificate.issuer != certificate.subject
        ),
        signers=tuple(certificate for certificate in certificates if not _issues(certificate)),
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
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return constraints.value.ca


def _decoded(response: bytes) -> rfc3161.TimeStampResponse:
    decoded = rfc3161.decode_timestamp_response(response)
    status = rfc3161.PKIStatus(decoded.status)
    if status is not rfc3161.PKIStatus.GRANTED:
        words = "; ".join(decoded.status_string) or "without a word"
        raise Untrusted(f"the authority answered {status.name}: {words}")
    if decoded.as_bytes() != response or _GRANTED not in response[:_HEAD_BYTES]:
        raise Untrusted("the time stamp response: expected only a time stamp, got more")
    versions = {signer_info.version for signer_info in decoded.signed_data.signer_infos}
    if decoded.signed_data.version != _SIGNED_DATA or versions != {_SIGNER_INFO}:
        raise Untrusted("the time stamp response: expected version 3 of CMS, got another")
    return decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStampRef(WireMap):
    """The anchor_ref of a time stamp: the request, and the complete response.

    A few bytes of a response are not signed; ``response_hash`` detects damage there too.
    """

    ver: Version = 1
    kind: str = KIND
    epoch: int
    ts: int
    nonce: bytes
    tsa_nonce: int
    response: bytes
    response_hash: Bytes32

    def rule(self) -> None:
        if self.kind != KIND:
            raise Malformed(f"an anchor_ref of kind {self.kind}, not {KIND}")
        if self.response_hash != h(self.response):
            raise Malformed("the time stamp of an anchor_ref is damaged")


class TimeStamps:
    """Time stamps as an ``Anchor``.

    ``ask`` sends a request to the authority and returns the response, or raises AnchorUnavailable.
    """

    kind: Final = KIND

    def __init__(self, trust: TsaTrust, ask: Callable[[bytes], bytes]) -> None:
        self._trust = trust
        self._ask = ask

    def publish(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Request a time stamp; the certificate is pinned, so the response need not carry it."""
        message = anchor_digest(root, epoch, ts, nonce)
        query = TimestampRequestBuilder(
            data=message, hash_algorithm=HashAlgorithm.SHA256, nonce=True, cert_req=False
        ).build()
        response = self._ask(query.as_bytes())
        ref = TimeStampRef(
            epoch=epoch,
            ts=ts,
            nonce=nonce,
            tsa_nonce=query.nonce or 0,
            response=response,
            response_hash=h(response),
        )
        try:
            self._trust.verify(response, message, ref.tsa_nonce)
        except Untrusted as error:
            raise AnchorUnavailable(
                f"no anchor from the time-stamping authority: {error}"
            ) from error
        return ref.encode()

    def verify(self, root: bytes, anchor_ref: bytes) -> AnchorProof:
        ref = TimeStampRef.decode(anchor_ref)
        message = anchor_digest(root, ref.epoch, ref.ts, ref.nonce)
        stamp = self._trust.verify(ref.response, message, ref.tsa_nonce)
        return AnchorProof(
            kind=self.kind,
            root=root,
            epoch=ref.epoch,
            ts=ref.ts,
            nonce=ref.nonce,
            time=stamp.time,
            witness=stamp.signer,
            place=f"time stamp {stamp.serial:x} under policy {stamp.policy}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TsaLine:
    url: str
    timeout_sec: float = 30.0
    tls: ssl.SSLContext | None = None

    def ask(self, query: bytes) -> bytes:
        """Return the authority's response, not yet verified."""
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
        body = b""
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > _MAX_BYTES:
                raise AnchorUnavailable(f"{self.url} sent more than {_MAX_BYTES} bytes")
        return body
