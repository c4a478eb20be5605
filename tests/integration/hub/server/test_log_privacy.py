"""What a hub leaves behind tells nothing of what it carried, and no key but its own, once."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.hub import spec_objects

STREAM = "record/a"
PLAINTEXT = b"the patient in room 12 is Ada Lovelace"
TOKEN = "a-bearer-token-nobody-should-see"
TOML = f"""
admission = "open"
[[streams]]
name = "{STREAM}"
[[principals]]
name = "admin"
role = "recorder_admin"
token_sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"
read = ["*"]
"""


def test_no_plaintext_and_no_key_is_left_in_logs_or_files(
    make_hub: Callable[..., Any], run_veen: Callable[..., Any]
) -> None:
    hub = make_hub(toml=TOML)
    started = run_veen("hub", "start", *hub.arguments)
    assert started.returncode == 0, started.stderr
    reader, alice = spec_objects.reader_key("reader"), spec_objects.key("alice")
    _use(hub.client(), reader, alice)
    stopped = run_veen("hub", "stop", "--data-dir", hub.data)
    (key_file,) = (hub.data / "keys").iterdir()
    secrets = [PLAINTEXT, TOKEN.encode(), bytes(reader), bytes(alice), key_file.read_bytes()]
    needles = [form for secret in secrets for form in _forms(secret)]
    output = (started.stdout + started.stderr + stopped.stdout + stopped.stderr).encode()
    assert not any(needle in output for needle in needles)
    files = [path for path in hub.data.rglob("*") if path.is_file() and path != key_file]
    assert any(path.name == "hub.log" and path.stat().st_size > 1_000 for path in files)
    assert _finds(files, needles) == []


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    for number, form in enumerate(_forms(PLAINTEXT)):
        (tmp_path / f"{number}").write_bytes(b"before " + form + b" after")
    files = sorted(tmp_path.iterdir())
    assert _finds(files, _forms(PLAINTEXT)) == [path.name for path in files]


def _use(client: Any, reader: Any, alice: Any) -> None:
    """Everything a client does, well and badly."""
    client.http.headers["Authorization"] = f"Bearer {TOKEN}"
    writer = client.writer(alice, STREAM)
    for _ in range(5):
        client.submit(writer.msg(PLAINTEXT, bytes(reader.public_key)))
    client.read(client.log(writer.label))
    client.checkpoint(writer.label, 5)
    duplicate = client.writer(alice, STREAM)
    forged = writer.msg(PLAINTEXT, bytes(reader.public_key))
    forged[9] = bytes(64)
    results = client.submit_batch([duplicate.msg(b"again"), forged])
    assert [result.code for result in results] == ["E.SEQ", "E.SIG"]
    for path in ("/v1/submit", "/v1/stream", "/tooling/authorize", "/v1/nowhere"):
        for kind in ("application/json", "application/cbor", "text/plain"):
            sent = client.http.post(path, content=PLAINTEXT, headers={"Content-Type": kind})
            assert sent.status_code >= 400
    assert client.http.get("/v1/nowhere", headers={"Authorization": "Bearer wrong"}).is_error


def _forms(secret: bytes) -> list[bytes]:
    """A secret as it stands, and as a log would most likely spell it."""
    return [
        secret, secret.hex().encode(), secret.hex().upper().encode(), repr(secret)[2:-1].encode(),
        base64.b64encode(secret), base64.urlsafe_b64encode(secret).rstrip(b"="),
    ]  # fmt: skip


def _finds(files: list[Path], needles: list[bytes]) -> list[str]:
    return [path.name for path in files if any(needle in path.read_bytes() for needle in needles)]
