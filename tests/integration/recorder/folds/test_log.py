"""What a fold refuses of an archive: entries changed, moved, forged, pruned or not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from recorder.folds.log import ArchivedLog, NotArchived
from support.overlay import overlay_oracle
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Untrusted
from veen.limits import Limits
from veen.log.chunk import read_entries
from veen.log.entry import Entry
from veen.objects.files import FileRetention, StoreLayout
from veen.overlay.fold import BadRange

NAME = "wallet.ledger"
MALLORY = SigningKey(h(b"mallory"))


def chunks(archived: Any) -> list[str]:
    prefix = f"{archived.archive.keys.prefix}log/chunk-"
    return [key for key in archived.store.objects.keys(prefix) if key.endswith(".log")]


def rewrite(archived: Any, key: str, change: Callable[[list[Entry]], list[Entry]]) -> None:
    """The chunk again, with other entries in sound frames."""
    raw = archived.store.objects.get(key)
    label = archived.job("ledger", NAME).label
    result = [(header.stream_seq, entry) for _, header, entry in read_entries(raw, Limits())]
    entries = change([entry for _, entry in result])
    frames = (entry.encode(label, result[0][0] + at) for at, entry in enumerate(entries))
    FileRetention(StoreLayout(archived.folder)).delete(key)
    archived.store.objects.put(key, b"".join(frames))


def body_changed(entries: list[Entry]) -> list[Entry]:
    msg = entries[4].msg()
    other = replace(msg, ciphertext=msg.ciphertext[:-1] + bytes([msg.ciphertext[-1] ^ 1]))
    return [*entries[:4], Entry(other.encode(), entries[4].receipt_bytes), *entries[5:]]


def message_replaced(entries: list[Entry]) -> list[Entry]:
    return [*entries[:4], Entry(entries[5].msg_bytes, entries[4].receipt_bytes), *entries[5:]]


def unsigned_by_hub(entries: list[Entry]) -> list[Entry]:
    receipt = replace(entries[4].receipt(), hub_ts=1_900_000_000).signed(MALLORY)
    return [*entries[:4], Entry(entries[4].msg_bytes, receipt.encode()), *entries[5:]]


def unsigned_by_client(entries: list[Entry]) -> list[Entry]:
    msg = entries[4].msg()
    forged = replace(msg, sig=MALLORY.sign(h(b"anything")))
    return [*entries[:4], Entry(forged.encode(), entries[4].receipt_bytes), *entries[5:]]


@pytest.mark.parametrize(
    "change",
    [
        body_changed,
        message_replaced,
        unsigned_by_hub,
        unsigned_by_client,
        pytest.param(lambda entries: entries[:-1], id="one missing"),
        pytest.param(lambda entries: [entries[1], entries[0], *entries[2:]], id="swapped"),
        pytest.param(lambda entries: [entries[0], *entries], id="one twice"),
    ],
)
def test_a_chunk_that_was_tampered_with_is_refused_by_its_key(
    archived: Any, change: Callable[[list[Entry]], list[Entry]]
) -> None:
    key = chunks(archived)[2]
    rewrite(archived, key, change)
    with pytest.raises(Untrusted, match=key):
        archived.fold(archived.job("ledger", NAME, block=8))


def test_a_flipped_bit_is_refused_with_its_place(archived: Any) -> None:
    key = chunks(archived)[1]
    raw = bytearray(archived.store.objects.get(key))
    raw[700] ^= 4
    FileRetention(StoreLayout(archived.folder)).delete(key)
    archived.store.objects.put(key, bytes(raw))
    with pytest.raises(Untrusted, match=rf"{key}, before byte \d+"):
        archived.fold(archived.job("ledger", NAME, block=8))


def test_a_chunk_that_is_gone_is_named(archived: Any) -> None:
    key = chunks(archived)[1]
    FileRetention(StoreLayout(archived.folder)).delete(key)
    with pytest.raises(Untrusted, match=f"lacks {key}"):
        archived.fold(archived.job("ledger", NAME, block=8))


@pytest.mark.parametrize(("first", "last"), [(1, 151), (151, 151), (9, 8)])
def test_a_run_that_is_not_archived_is_refused(archived: Any, first: int, last: int) -> None:
    with pytest.raises((NotArchived, BadRange)):
        archived.job("ledger", NAME, from_seq=first, to_seq=last)


def test_a_stream_that_is_not_archived_is_refused(archived: Any) -> None:
    with pytest.raises(NotArchived, match="nothing of stream elsewhere"):
        archived.job("elsewhere", NAME)


def prune_first(archived: Any, label: bytes) -> None:
    """The archive of a hub whose retention was faster than its first push."""
    archive = archived.archive
    manifest = archive.latest()
    result = archive.label(manifest, label)
    first = replace(result.segments[0], is_pruned=True)
    changed = replace(result, segments=(first, *result.segments[1:]))
    refs = tuple(
        replace(ref, sha256=archive.put_version(changed.encode())) if ref.label == label else ref
        for ref in manifest.labels
    )
    latest = archive.put_version(replace(manifest, labels=refs).encode())
    archive.heads.swap(archive.head(), latest)
    FileRetention(StoreLayout(archived.folder)).delete(chunks(archived)[0])


def test_a_pruned_chunk_is_refused_and_what_follows_is_folded(archived: Any) -> None:
    prune_first(archived, archived.job("ledger", NAME).label)
    with pytest.raises(NotArchived, match="stream_seq 1 to 20 were pruned"):
        archived.fold(archived.job("ledger", NAME, block=8))
    job = archived.job("ledger", NAME, block=8, from_seq=21)
    assert archived.fold(job).folded == overlay_oracle.folded(
        NAME, archived.hub.detail["ledger"][20:]
    )


def test_one_message_that_nobody_can_open_does_not_stop_a_fold(
    archived: Any, a_signed_history: Callable[..., list[Any]]
) -> None:
    strange = [replace(item, schema=b"") for item in a_signed_history(3, 4, NAME)]
    archived.hub.write("ledger", strange, Random(3))
    archived.push()
    result = archived.fold(archived.job("ledger", NAME, block=8))
    detail = [*archived.hub.detail["ledger"][:150]]
    detail += [replace(item, body=b"", says=None) for item in archived.hub.detail["ledger"][150:]]
    assert result.folded == overlay_oracle.folded(NAME, detail)


def test_an_entry_is_found_by_its_place_in_one_small_read(archived: Any) -> None:
    reads: list[int] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(archived.store.objects, name)

        def get_range(self, key: str, start: int, size: int) -> bytes:
            result: bytes = archived.store.objects.get_range(key, start, size)
            reads.append(len(result))
            return result

    job = archived.job("ledger", NAME, block=8, keeps_summaries=True)
    archived.fold(job)
    archive = archived.archive
    archive.objects = Counting()
    source = job.source(archive, archived.hub.reader.open())
    assert isinstance(source.log, ArchivedLog)
    assert source.root(64).anchor.upto_seq == 64
    assert len(reads) == 1
    assert reads[0] < 2_000
