"""Recorder checkpoints that are kept: written once, here and in object storage, and in order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recorder.archive.manifest import ArchiveKeys
from recorder.archive.store import hubs
from recorder.checkpoints.catalogue import RecorderCheckpointName, parse_name
from recorder.checkpoints.checkpoints import verify_chain, verify_next
from recorder.checkpoints.store import (
    CheckpointCadence,
    CheckpointDirectory,
    CheckpointStore,
    identity_of_document,
    read_document,
    read_identity,
)
from support.recorder import anchor_documents
from veen.crypto import SigningKey
from veen.digest import h
from veen.errors import Malformed, Untrusted
from veen.log import layout
from veen.log.layout import RecorderName
from veen.objects.port import Store, StoreRefused


def test_refuses_a_file_that_is_not_what_it_is_called(checkpoint_store: CheckpointStore) -> None:
    item, other = (
        anchor_documents.a_checkpoint(),
        anchor_documents.a_checkpoint(anchor_documents.START + 5),
    )
    checkpoint_store.put(item)
    path = checkpoint_store.home.checkpoints / RecorderCheckpointName.of(item).file
    for content in (other.encode(), item.encode()[:-1]):
        path.chmod(0o600)
        path.write_bytes(content)
        with pytest.raises((Untrusted, Malformed), match=path.name):
            checkpoint_store.latest()


def test_refuses_damaged_objects(
    checkpoint_store: CheckpointStore, anchor_store: Store, tmp_path: Path
) -> None:
    checkpoint_store.put(anchor_documents.a_checkpoint())
    (stored,) = (tmp_path / "objects").rglob("*-*.cbor")
    stored.chmod(0o600)
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elsewhere = CheckpointStore(
        CheckpointDirectory(tmp_path / "elsewhere"),
        anchor_documents.HUB.hub_id,
        anchor_store.objects,
    )
    with pytest.raises(Untrusted, match="recorder checkpoint of its name"):
        elsewhere.fetch()
    assert elsewhere.names() == []


def test_an_object_has_the_key_of_the_archive_and_is_no_archive(
    checkpoint_store: CheckpointStore, anchor_store: Store
) -> None:
    item = anchor_documents.a_checkpoint()
    checkpoint_store.put(item)
    hub_id = anchor_documents.HUB.hub_id
    name = RecorderName.of(item.created_at, item.checkpoint_id)
    key = ArchiveKeys(hub_id).file(layout.recorder_checkpoint(name))
    assert list(anchor_store.objects.keys("")) == [key]
    assert anchor_store.objects.get(key) == item.encode()
    assert list(hubs(anchor_store)) == []
    anchor_store.objects.put(ArchiveKeys(hub_id).version(h(b"x")), b"x")
    assert list(hubs(anchor_store)) == [hub_id]


def test_reads_the_copies_of_an_earlier_release(
    checkpoint_directory: CheckpointDirectory,
    checkpoint_store: CheckpointStore,
    anchor_store: Store,
) -> None:
    old, new = (anchor_documents.a_checkpoint(anchor_documents.START + n) for n in (1, 2))
    place = f"recorder/{anchor_documents.HUB.hub_id.hex()}/checkpoints/"
    anchor_store.objects.put(place + RecorderCheckpointName.of(old).file, old.encode())
    anchor_store.objects.put(place + RecorderCheckpointName.of(new).file, new.encode())
    checkpoint_store.put(new)
    assert (checkpoint_store.fetch(), checkpoint_store.fetch()) == (1, 0)
    assert list(map(checkpoint_store.get, checkpoint_store.names())) == [old, new]


def test_refuses_checkpoints_that_go_back() -> None:
    first = anchor_documents.a_checkpoint(anchor_documents.START, (5, 2))
    for later, message in (
        (anchor_documents.a_checkpoint(anchor_documents.START - 1, (6, 2)), "before"),
        (
            anchor_documents.a_checkpoint(anchor_documents.START + 1, (4, 2)),
            "record/app/a ended at 5",
        ),
        (
            anchor_documents.a_checkpoint(anchor_documents.START + 1, (5, 2), b"x"),
            "two different roots",
        ),
    ):
        with pytest.raises(Untrusted, match=f"{later.checkpoint_id.hex()}.*{message}"):
            verify_chain([first, later], anchor_documents.HUB)
    assert verify_chain(
        [first, anchor_documents.a_checkpoint(anchor_documents.START, (5, 2))], anchor_documents.HUB
    )


def test_refuses_a_document_of_nobody() -> None:
    good = anchor_documents.a_checkpoint()
    forged = good.signed(SigningKey(b"f" * 32))
    with pytest.raises(Untrusted, match="not signed by its hub"):
        verify_next(forged, None, identity_of_document(forged, None))


def test_keeps_here_what_the_store_did_not_take(
    checkpoint_directory: CheckpointDirectory, checkpoint_store: CheckpointStore, tmp_path: Path
) -> None:
    """For a while there is a file in the place of the store's directory."""
    a_checkpoint, place = anchor_documents.a_checkpoint(), tmp_path / "objects"
    place.rename(tmp_path / "elsewhere")
    place.write_text("not mounted")
    with pytest.raises(StoreRefused):
        checkpoint_store.put(a_checkpoint)
    place.unlink()
    (tmp_path / "elsewhere").rename(place)
    assert checkpoint_store.latest() == a_checkpoint
    assert list(checkpoint_directory.unstored.iterdir())
    assert (checkpoint_store.settle(), checkpoint_store.settle()) == (1, 0)
    assert list(checkpoint_directory.unstored.iterdir()) == []


def test_comes_back_from_the_store_alone(
    checkpoint_store: CheckpointStore, anchor_store: Store, tmp_path: Path
) -> None:
    checkpoints = [
        anchor_documents.a_checkpoint(anchor_documents.START + n, (n, 0)) for n in (1, 3, 2)
    ]
    for item in checkpoints:
        checkpoint_store.put(item)
        checkpoint_store.put(item)
    elsewhere = CheckpointStore(
        CheckpointDirectory(tmp_path / "elsewhere"),
        anchor_documents.HUB.hub_id,
        anchor_store.objects,
    )
    assert (elsewhere.fetch(), elsewhere.fetch()) == (3, 0)
    assert elsewhere.names() == checkpoint_store.names()
    assert elsewhere.latest() == checkpoints[1]
    path = elsewhere.home.checkpoints / RecorderCheckpointName.of(checkpoints[0]).file
    assert read_document(path) == checkpoints[0]


def test_goes_without_a_store(checkpoint_directory: CheckpointDirectory) -> None:
    checkpoint_store = CheckpointStore(checkpoint_directory, anchor_documents.HUB.hub_id, None)
    assert checkpoint_store.latest() is None
    checkpoint_store.put(anchor_documents.a_checkpoint())
    assert (checkpoint_store.settle(), checkpoint_store.fetch(), len(checkpoint_store.names())) == (
        0,
        0,
        1,
    )


@pytest.mark.parametrize("file", ["", "x.cbor", "1-2.cbor", f"{0:020d}-{'g' * 64}.cbor"])
def test_other_files_are_no_checkpoints(file: str) -> None:
    assert parse_name(file) is None


@pytest.mark.parametrize(
    ("minutes", "events", "age", "heads", "due"),
    [
        (5, 10, 0, {}, None),
        (5, 10, 300, {"record/app/a": 3}, None),
        (5, 10, 299, {"record/app/a": 4}, None),
        (5, 10, 300, {"record/app/a": 4}, "5 minutes"),
        (5, 10, 0, {"record/app/a": 8, "record/new": 5}, "10 events"),
        (5, 10, 0, {"record/app/a": 8, "record/new": 4}, None),
        (0, 10, 9_999, {"record/app/a": 12}, None),
        (5, 0, 0, {"record/app/a": 1_000_000}, None),
    ],
)
def test_a_checkpoint_is_due_by_time_and_by_volume(
    minutes: int, events: int, age: int, heads: dict[str, int], due: str | None
) -> None:
    last = anchor_documents.a_checkpoint(anchor_documents.START, (3, 0))
    cadence = CheckpointCadence(every_minutes=minutes, every_events=events)
    result = cadence.due(anchor_documents.START + age, last, heads)
    assert result == due or (due is not None and result is not None and result.startswith(due))
    assert cadence.due(0, None, {}) == "there is none yet"


def test_a_hub_is_known_by_its_first_key_or_by_its_identity_file(
    checkpoint_directory: CheckpointDirectory,
) -> None:
    old, new = anchor_documents.KEY, SigningKey(b"n" * 32)
    rotated = anchor_documents.HUB.rotated(old, new.public, anchor_documents.START, 0)
    late = anchor_documents.a_checkpoint(anchor_documents.START + 1)
    late = replace(late, hub_public=new.public).signed(new)
    with pytest.raises(Untrusted, match="--identity"):
        identity_of_document(late, None)
    checkpoint_directory.make()
    (checkpoint_directory.root / layout.IDENTITY).write_bytes(rotated.encode())
    (checkpoint_directory.root / layout.IDENTITY_SIG).write_bytes(rotated.signature_by(new))
    late.verify(identity_of_document(late, read_identity(checkpoint_directory.root)))
    (checkpoint_directory.root / layout.IDENTITY_SIG).write_bytes(rotated.signature_by(old))
    with pytest.raises(Untrusted, match=layout.IDENTITY):
        read_identity(checkpoint_directory.root)
