"""Time stamps from a real authority: what is refused, and that they verify long after."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from recorder.anchor.anchors import AnchorUnavailable, kind_of
from recorder.anchor.rfc3161 import BadTsa, TimeStampRef, TimeStamps, TsaLine, trust_of
from support.long_form import LONG
from veen.digest import h
from veen.errors import Malformed, Untrusted

ROOT, NONCE, EPOCH, TS = b"r" * 32, b"n" * 32, 7, 1_794_000_000
POLICY = "1.2.3.4.1"
SHA256 = bytes.fromhex("608648016503040201")


def never(query: bytes) -> bytes:
    raise AssertionError("a verification asked the network")


def stamps(authority: Any, ask: Callable[[bytes], bytes] = never) -> TimeStamps:
    return TimeStamps(trust_of(authority.chain, POLICY), ask)


@pytest.fixture(scope="module")
def ref(authority: Any) -> bytes:
    """An anchor_ref as it was published once."""
    return stamps(authority, authority.reply).publish(ROOT, EPOCH, TS, NONCE)


def changed(ref: bytes, **fields: Any) -> bytes:
    result = replace(TimeStampRef.decode(ref), **fields)
    return replace(result, response_hash=h(result.response)).encode()


def test_refuses_another_root(authority: Any, ref: bytes) -> None:
    with pytest.raises(Untrusted, match="cannot be verified"):
        stamps(authority).verify(b"R" + ROOT[1:], ref)


@pytest.mark.parametrize(
    "fields", [{"epoch": 8}, {"ts": TS + 1}, {"nonce": b"m" * 32}, {"nonce": b""}, {"tsa_nonce": 5}]
)
def test_refuses_a_changed_field(authority: Any, ref: bytes, fields: dict[str, Any]) -> None:
    with pytest.raises(Untrusted, match="cannot be verified"):
        stamps(authority).verify(ROOT, changed(ref, **fields))


def test_a_field_cannot_slide_into_the_next(authority: Any) -> None:
    mine = stamps(authority, authority.reply)
    ref = mine.publish(ROOT, EPOCH, TS, b"\0" + NONCE)
    with pytest.raises(Untrusted):
        mine.verify(ROOT, changed(ref, nonce=NONCE))


def test_every_changed_byte_fails(authority: Any, ref: bytes) -> None:
    mine = stamps(authority)
    for at in range(len(ref)):
        raw = bytearray(ref)
        raw[at] ^= 1 << at % 8
        with pytest.raises((Malformed, Untrusted)):
            mine.verify(ROOT, bytes(raw))


def test_a_forged_response_proves_nothing_else(authority: Any, ref: bytes) -> None:
    """With its hash made to fit: what no signature covers can change, what it proves cannot."""
    mine, response = stamps(authority), TimeStampRef.decode(ref).response
    proven, held = mine.verify(ROOT, ref), 0
    for at in range(0, len(response), 1 if LONG else 3):
        raw = bytearray(response)
        raw[at] ^= 1 << at % 8
        try:
            result = mine.verify(ROOT, changed(ref, response=bytes(raw)))
        except (Malformed, Untrusted):
            continue
        assert result == proven
        held += 1
    assert held < 12  # the name of the signature's algorithm, which the key settles anyway


def test_refuses_another_authority(other_authority: Any, ref: bytes) -> None:
    with pytest.raises(Untrusted, match="a signature by a pinned certificate"):
        stamps(other_authority).verify(ROOT, ref)


def test_refuses_a_certificate_that_is_not_pinned(
    authority: Any, ref: bytes, tmp_path: Path
) -> None:
    """Another certificate of the same authority, until it is added beside the old one."""
    renewed = authority.renewed(tmp_path)
    late = stamps(renewed, renewed.reply).publish(ROOT, EPOCH, TS, NONCE)
    for mine, other in ((authority, late), (renewed, ref)):
        with pytest.raises(Untrusted, match="add it to tsa_certificates"):
            stamps(mine).verify(ROOT, other)
    both = TimeStamps(trust_of([*authority.chain, renewed.pem("signer")], POLICY), never)
    assert {both.verify(ROOT, item).witness for item in (ref, late)} == {
        "CN=Test TSA",
        "CN=Renewed TSA",
    }


def test_refuses_a_chain_to_another_root(authority: Any, other_authority: Any, ref: bytes) -> None:
    pems = [authority.pem("signer"), authority.pem("middle"), other_authority.pem("root")]
    with pytest.raises(Untrusted, match="cannot be verified"):
        TimeStamps(trust_of(pems), never).verify(ROOT, ref)


def test_refuses_a_chain_with_a_missing_link(authority: Any, ref: bytes) -> None:
    pems = [authority.pem("signer"), authority.pem("root")]
    with pytest.raises(Untrusted, match="cannot be verified"):
        TimeStamps(trust_of(pems), never).verify(ROOT, ref)


def test_refuses_another_policy(authority: Any, ref: bytes) -> None:
    with pytest.raises(Untrusted, match="Policy"):
        TimeStamps(trust_of(authority.chain, "1.2.3.4.2"), never).verify(ROOT, ref)


def test_refuses_a_signer_that_may_not_stamp(authority: Any, tmp_path: Path) -> None:
    server = type(authority).make(tmp_path, "A web server", signer="serving")
    config = (tmp_path / "tsa.cnf").read_text()
    assert "serverAuth" in config
    # OpenSSL does not stamp with such a certificate, so another one of the key does it.
    stamping = type(authority)(tmp_path)
    web = server.pem("signer")
    stamping._openssl(
        "x509", "-req", "-in", "signer.csr", "-CA", "middle.pem", "-CAkey", "middle.key",
        "-set_serial", str(x509.load_pem_x509_certificate(web).serial_number), "-days", "9",
        "-extfile", "tsa.cnf", "-extensions", "stamping", "-out", "signer.pem",
    )  # fmt: skip
    trust = trust_of([web, server.pem("middle"), server.pem("root")])
    with pytest.raises(AnchorUnavailable, match="cannot be verified"):
        TimeStamps(trust, stamping.reply).publish(ROOT, EPOCH, TS, NONCE)


@pytest.mark.parametrize("names", [["root"], ["signer"], ["signer", "middle"], []])
def test_refuses_certificates_that_are_not_a_chain(authority: Any, names: list[str]) -> None:
    with pytest.raises(BadTsa, match="whole chain"):
        trust_of([authority.pem(name) for name in names])


@pytest.mark.parametrize(("pem", "policy"), [(b"no certificate", None), (None, "policy")])
def test_refuses_settings_that_mean_nothing(
    authority: Any, pem: bytes | None, policy: str | None
) -> None:
    with pytest.raises(BadTsa):
        trust_of([pem] if pem else authority.chain, policy)


def asking_for_certificates(query: bytes) -> bytes:
    """The same query with certReq set, as if the authority sent its certificate unasked."""
    return bytes([query[0], query[1] + 3]) + query[2:] + b"\x01\x01\xff"


def test_a_stamp_that_carries_the_certificate_of_its_signer_holds(
    authority: Any, other_authority: Any, tmp_path: Path
) -> None:
    carrying = authority.copied(tmp_path)
    config = (tmp_path / "tsa.cnf").read_text()
    (tmp_path / "tsa.cnf").write_text(config.replace("certs = ", "# "))
    mine = stamps(authority, lambda query: carrying.reply(asking_for_certificates(query)))
    ref = mine.publish(ROOT, EPOCH, TS, NONCE)
    assert len(TimeStampRef.decode(ref).response) > 900
    assert mine.verify(ROOT, ref).witness == "CN=Test TSA"
    strange = other_authority.folder / "root.pem"
    (tmp_path / "tsa.cnf").write_text(config.replace(f"{tmp_path}/middle.pem", str(strange)))
    with pytest.raises(AnchorUnavailable):
        mine.publish(ROOT, EPOCH, TS, NONCE)


def test_refuses_what_the_authority_did_not_grant(authority: Any) -> None:
    def unknown_hash(query: bytes) -> bytes:
        result: bytes = authority.reply(query.replace(SHA256, SHA256[:-1] + b"\x09"))
        return result

    with pytest.raises(AnchorUnavailable, match="REJECTION"):
        stamps(authority, unknown_hash).publish(ROOT, EPOCH, TS, NONCE)


def test_refuses_an_answer_to_another_question(authority: Any) -> None:
    first: list[bytes] = []

    def replayed(query: bytes) -> bytes:
        first.append(authority.reply(query))
        return first[0]

    mine = stamps(authority, replayed)
    mine.publish(ROOT, EPOCH, TS, NONCE)
    with pytest.raises(AnchorUnavailable, match="Nonce"):
        mine.publish(ROOT, EPOCH, TS, NONCE)


@pytest.mark.parametrize(
    "answer", [b"", b"\x30", b"<html>", b"\x30\x03\x02\x01\x00", b"\x30\x05\x30\x03\x02\x01\x00"]
)
def test_refuses_what_is_no_response(authority: Any, answer: bytes) -> None:
    with pytest.raises(AnchorUnavailable):
        stamps(authority, lambda _: answer).publish(ROOT, EPOCH, TS, NONCE)


def test_says_that_the_authority_is_down(authority: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/tsr"
        with pytest.raises(AnchorUnavailable, match=f"{url} cannot be reached"):
            stamps(authority, TsaLine(url=url).ask).publish(ROOT, EPOCH, TS, NONCE)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"status": 503}, "answered 503"),
        ({"kind": "text/html"}, "answered 200 text/html"),
        ({"change": lambda body: body * 1_000}, "sent more than"),
        ({"change": lambda body: body[:-1]}, "no anchor from"),
    ],
)
def test_refuses_an_answer_over_http_that_is_none(
    authority: Any, serve: Callable[..., Any], how: dict[str, Any], message: str
) -> None:
    line = TsaLine(url=serve(authority, **how).url)
    with pytest.raises(AnchorUnavailable, match=message):
        stamps(authority, line.ask).publish(ROOT, EPOCH, TS, NONCE)


def test_a_stamp_over_http_verifies_without_it(authority: Any, serve: Callable[..., Any]) -> None:
    server = serve(authority)
    ref = stamps(authority, TsaLine(url=server.url).ask).publish(ROOT, EPOCH, TS, NONCE)
    result = stamps(authority).verify(ROOT, ref)
    assert kind_of(ref) == result.kind == "rfc3161"
    assert (result.root, result.epoch, result.ts, result.nonce) == (ROOT, EPOCH, TS, NONCE)
    assert result.witness == "CN=Test TSA"
    assert POLICY in result.place
    assert len(server.queries) == 1


def test_refuses_a_stamp_made_after_its_certificate_expired(authority: Any, tmp_path: Path) -> None:
    now = int(time.time())
    expired = authority.valid_between(tmp_path, now - 7_200, now - 3_600)
    with pytest.raises(AnchorUnavailable, match="expired"):
        stamps(expired, expired.reply).publish(ROOT, EPOCH, TS, NONCE)


def test_a_stamp_outlives_its_certificate(authority: Any, tmp_path: Path) -> None:
    until = int(time.time()) + 2
    short = authority.valid_between(tmp_path, until - 3_600, until)
    ref = stamps(short, short.reply).publish(ROOT, EPOCH, TS, NONCE)
    while time.time() <= until + 1:
        time.sleep(0.05)
    with pytest.raises(AnchorUnavailable, match="expired"):
        stamps(short, short.reply).publish(ROOT, EPOCH, TS, NONCE)
    assert stamps(short).verify(ROOT, ref).time <= until
