"""Recorder checkpoints on their way into an archive, and that none of them was lost or changed."""

from __future__ import annotations

from recorder.archive.label_push import OldCopy, Upload
from recorder.archive.manifest import Piece, RecorderManifest
from recorder.archive.source import Source
from veen import layout
from veen.errors import Malformed, Untrusted
from veen.layout import RecorderName
from veen.recorder_checkpoint import RecorderCheckpoint


def push_recorder(
    source: Source, upload: Upload, names: list[str], known: RecorderManifest
) -> RecorderManifest:
    """Those of ``names``, which were there before any label was read: their checkpoints are too."""
    archived = {one.name: one for one in known.pieces}
    lost = sorted(archived.keys() - names)
    if lost:
        raise OldCopy(f"the directory has no {lost[0]}, the archive has: it is an old copy")
    pieces = (archived.get(name) or _put(source, upload, name) for name in sorted(names))
    return RecorderManifest(pieces=tuple(pieces))


def read_document(name: str, raw: bytes) -> RecorderCheckpoint:
    """The document in a file of this name; Untrusted when it is another or none."""
    try:
        found = RecorderCheckpoint.decode(raw)
    except Malformed as error:
        raise Untrusted(f"{name} is damaged: {error}: run `veen hub verify`") from error
    if layout.parse_recorder_checkpoint(name) != RecorderName.of(
        found.created_at, found.checkpoint_id
    ):
        raise Untrusted(f"{name} holds another document than its name says: run `veen hub verify`")
    return found


def _put(source: Source, upload: Upload, name: str) -> Piece:
    path, piece = source.root / name, source.piece(name)
    read_document(name, path.read_bytes())
    upload.file(upload.archive.keys.file(name), path, piece.size, piece.sha256)
    return piece
