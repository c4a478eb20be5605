"""A portable set that was altered, by someone who can make its manifest fit, is not taken in."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
import pytest

from veen.client import portable, portable_set
from veen.client.portable_set import PortableManifest, SyncState, manifest_of
from veen.digest import h
from veen.errors import Malformed, Untrusted

ATTACHMENT = b"a sealed attachment"
# The others hold what nobody signed: an address and limits, and keys under a passphrase.
SIGNED = [item for item in portable_set.FILES if item not in ("sync_state.cbor", "keystore.enc")]


def items(path: Path) -> Iterator[Any]:
    """A CBOR sequence, read by another's decoder."""
    file = io.BytesIO(path.read_bytes())
    while file.tell() < len(file.getvalue()):
        yield cbor2.load(file)


def resealed(out: Path) -> None:
    """Make the manifest fit again, as whoever alters a set can."""
    (out / "manifest.cbor").unlink()
    raw = manifest_of(out).encode()
    (out / "manifest.cbor").write_bytes(raw)


def refused(out: Path, into: Path, detail: str | None = None) -> None:
    with pytest.raises((Untrusted, Malformed), match=detail):
        portable.import_(out, into)
    assert not into.exists()
    assert not list(into.parent.glob(".*"))


@pytest.mark.parametrize("name", [*portable_set.FILES, "manifest.cbor", "attachments"])
def test_an_altered_missing_or_linked_file_is_refused(name: str, out: Path, tmp_path: Path) -> None:
    path = out / name if name != "attachments" else out / name / h(ATTACHMENT).hex()
    good = path.read_bytes()
    altered = bytearray(good)
    altered[len(good) // 2] ^= 1
    for wrong in (bytes(altered), good[:-1], good + b"\x00"):
        path.write_bytes(wrong)
        refused(out, tmp_path / "new")
    path.unlink()
    refused(out, tmp_path / "new")
    (tmp_path / "elsewhere").write_bytes(good)
    path.symlink_to(tmp_path / "elsewhere")
    refused(out, tmp_path / "new")
    path.unlink()
    os.mkfifo(path)
    refused(out, tmp_path / "new", "not a regular file")


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("place", [0.02, 0.3, 0.5, 0.99])
def test_a_changed_byte_is_found_behind_a_manifest_that_fits(
    name: str, place: float, out: Path, tmp_path: Path
) -> None:
    raw = bytearray((out / name).read_bytes())
    raw[int(len(raw) * place)] ^= 1
    (out / name).write_bytes(bytes(raw))
    resealed(out)
    refused(out, tmp_path / "new")


def changed(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    result = [cbor2.dumps(stream_item) for stream_item in items(path)]
    path.write_bytes(b"".join(change(result)))


@pytest.mark.parametrize(
    "change",
    [
        lambda item: item[:-1],
        lambda item: [*item, item[-1]],
        lambda item: [item[1], item[0], *item[2:]],
        lambda item: item[1:],
        lambda item: [*item[11:], *item[:11]],
        lambda _: [],
    ],
)
@pytest.mark.parametrize("name", ["receipts.cborseq", "payloads.cborseq"])
def test_items_out_of_place_are_found(name: str, change: Any, out: Path, tmp_path: Path) -> None:
    changed(out / name, change)
    resealed(out)
    refused(out, tmp_path / "new")


@pytest.mark.parametrize(
    "changes",
    [
        {"last_mmr_root": h(b"x")},
        {"last_stream_seq": 10},
        {"last_stream_seq": 12},
        {"label": h(b"x")},
        {"stream": "record/c"},
        {"epoch": 1},
        {"first_seq": 2, "peaks_before": (h(b"x"),)},
    ],
)
def test_a_sync_state_that_does_not_fit_is_found(
    changes: dict[str, Any], out: Path, tmp_path: Path
) -> None:
    sync = SyncState.decode((out / "sync_state.cbor").read_bytes())
    wrong = replace(sync, labels=(replace(sync.labels[0], **changes), *sync.labels[1:]))
    (out / "sync_state.cbor").write_bytes(wrong.encode())
    resealed(out)
    refused(out, tmp_path / "new")


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "attachments/../../x", "state.json"])
def test_a_manifest_names_only_files_of_a_set(name: str, out: Path, tmp_path: Path) -> None:
    manifest = PortableManifest.decode((out / "manifest.cbor").read_bytes())
    plain = cbor2.loads(manifest.encode())
    plain[2] = sorted([*plain[2], {1: name, 2: 0, 3: h(b"")}], key=lambda item: item[1])
    (out / "manifest.cbor").write_bytes(cbor2.dumps(plain, canonical=True))
    refused(out, tmp_path / "new", "unknown file")
