"""A hub's key is rotated, and a hub is served over TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from support.hub import spec_objects

STREAM = "record/a"


def test_a_rotated_key_signs_from_then_on_and_the_old_one_is_still_known(
    open_hub: Any, run_veen: Callable[..., Any]
) -> None:
    client = open_hub.client()
    hub_id, (old,) = client.hub_id, client.hub_pks
    writer = client.writer(spec_objects.key("alice"), STREAM)
    before = client.submit(writer.msg(b"before"))
    assert _rotate(open_hub, run_veen).returncode != 0
    open_hub.stop()
    done = _rotate(open_hub, run_veen, "--overlap-sec", 3_600)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    client = open_hub.start().client()
    new = bytes.fromhex(client.status["hub_pk"])
    assert (document["hub_pk"], document["hub_id"]) == (new.hex(), hub_id.hex())
    assert (client.hub_id, client.hub_pks) == (hub_id, [old, new])
    after = client.submit(writer.msg(b"after"))
    assert client.receipt(writer.label, 1) == before
    for receipt, signer, other in ((before, old, new), (after, new, old)):
        assert spec_objects.signed_by(signer, receipt[6], receipt[:6])
        assert not spec_objects.signed_by(other, receipt[6], receipt[:6])
    assert client.read(client.log(writer.label)).mmr.size == 2


def test_a_checkpoint_of_the_overlap_carries_both_witnesses(
    open_hub: Any, run_veen: Callable[..., Any]
) -> None:
    client = open_hub.client()
    writer = client.writer(spec_objects.key("alice"), STREAM)
    client.submit_batch([writer.msg(b"1"), writer.msg(b"2")])
    alone = client.checkpoint(writer.label, 1)
    assert len(alone) == 7
    open_hub.stop()
    assert _rotate(open_hub, run_veen).returncode == 0
    client = open_hub.start().client()
    old, new = client.hub_pks
    checkpoint = client.checkpoint(writer.label, 2)
    assert spec_objects.signed_by(new, checkpoint[6], checkpoint[:6])
    for public in (old, new):
        assert any(spec_objects.signed_by(public, sig, checkpoint[:6]) for sig in checkpoint[7])
    good, single = _checkpoint_file(open_hub, 2), _checkpoint_file(open_hub, 1)
    keys = ("--old-key", old.hex(), "--new-key", new.hex())
    assert run_veen("hub", "verify-rotation", "--checkpoint", good, *keys).returncode == 0
    refused = run_veen("hub", "verify-rotation", "--checkpoint", single, *keys)
    assert refused.returncode == 3
    assert "not witnessed" in refused.stderr


def test_after_the_overlap_the_old_key_witnesses_no_more(
    open_hub: Any, run_veen: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    open_hub.stop()
    assert _rotate(open_hub, run_veen, "--overlap-sec", 0).returncode == 0
    client = open_hub.start().client()
    end = client.status["hub_keys"][0]["valid_until"]
    wait_until(lambda: client.http.get("/readyz").json()["hub_ts"] > end, 10, "the end of the key")
    writer = client.writer(spec_objects.key("alice"), STREAM)
    client.submit(writer.msg(b"1"))
    assert len(client.checkpoint(writer.label, 1)) == 7


@pytest.mark.parametrize(
    "keys", [("zz", "11" * 32), ("11", "11" * 32)], ids=["no hex", "too short"]
)
def test_a_key_that_is_none_is_refused_in_one_line(
    keys: tuple[str, str], open_hub: Any, run_veen: Callable[..., Any]
) -> None:
    client = open_hub.client()
    writer = client.writer(spec_objects.key("alice"), STREAM)
    client.submit(writer.msg(b"1"))
    client.checkpoint(writer.label, 1)
    path = _checkpoint_file(open_hub, 1)
    named = ("--old-key", keys[0], "--new-key", keys[1])
    done = run_veen("hub", "verify-rotation", "--checkpoint", path, *named)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_h30_a_hub_speaks_tls_with_aead_suites_only(
    make_hub: Callable[..., Any], run_veen: Callable[..., Any], tmp_path: Path
) -> None:
    cert, key = _self_signed(tmp_path)
    hub = make_hub("--admission", "open", "--reads", "open", "--tls-cert", cert, "--tls-key", key)
    done = run_veen("hub", "start", *hub.arguments)
    assert done.returncode == 0, done.stderr
    client = hub.client(tls=ssl.create_default_context(cafile=cert))
    writer = client.writer(spec_objects.key("alice"), STREAM)
    client.submit(writer.msg(b"over tls"))
    assert client.read(client.log(writer.label)).mmr.size == 1
    _refuses_other_than_aead(hub, cert)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        hub.client()
    with pytest.raises(httpx.TransportError):
        httpx.get(hub.url.replace("https", "http") + "/healthz", trust_env=False)


def _refuses_other_than_aead(hub: Any, cert: Path) -> None:
    """H30: over TLS 1.2 as over TLS 1.3."""
    old = ssl.create_default_context(cafile=cert)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    for ciphers, taken in (("ECDHE+AESGCM", True), ("ALL:!AESGCM:!CHACHA20:!AESCCM", False)):
        old.set_ciphers(f"{ciphers}:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", hub.port), timeout=30) as line:
            if taken:
                old.wrap_socket(line, server_hostname="127.0.0.1").close()
                continue
            # The event loop closes the connection; it does not send the alert.
            with pytest.raises(ssl.SSLError, match=r"UNEXPECTED_EOF|HANDSHAKE_FAILURE"):
                old.wrap_socket(line, server_hostname="127.0.0.1")


def _rotate(hub: Any, veen: Callable[..., Any], *more: object) -> Any:
    return veen("hub", "rotate-key", "--data-dir", hub.data, "--json", *more)


def _checkpoint_file(hub: Any, upto_seq: int) -> Path:
    (result,) = (hub.data / "log").glob(f"checkpoint-*-{upto_seq:020}.cbor")
    answer: Path = result
    return answer


def _self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hub")])
    now = dt.datetime.now(dt.UTC)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path
