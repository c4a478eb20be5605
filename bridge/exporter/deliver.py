"""Delivery of a staged carrier: its bags copied to media, and the audit entries about it.

An export is audited as begun, as written to its medium, or as failed (AGB0 4.6, 4.9).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.audit_log import (
    AuditPending,
    AuditWriter,
    ExportBegin,
    ExportFailed,
    ExportHeartbeat,
    ExportSuccess,
)
from bridge.carrier.bag import MAX_TAG_BYTES, SIGNATURE, TAGMANIFEST
from bridge.carrier.directory import FOLDER, BagPath, Directory
from bridge.carrier.format import CarrierLedgerEntry
from bridge.carrier.medium import (
    BadMedium,
    has_verifier,
    put_verifier,
    read_small,
    verify_free_space,
    verify_written,
    write_medium,
)
from bridge.carrier.writer import StagedCarrier
from bridge.errors import CarrierRefused, printable
from bridge.exporter.build import Proven
from veen.errors import VeenError
from veen.system.durable import NoSpace, SyncFailed
from veen.system.environment import Progress, no_progress

_MAX_DETAIL: Final = 1000


class StagingFailed(VeenError):
    """The exporter's own directory cannot be written."""


class ExportAudit:
    """Writes the audit entries of an export, for one operator and one medium."""

    def __init__(
        self, writer: AuditWriter, *, bridge_id: bytes, operator: str, medium: str
    ) -> None:
        self._writer = writer
        self._bridge_id = bridge_id
        self._operator = operator
        self._medium = medium

    @property
    def author(self) -> bytes:
        """The client that writes the log."""
        return self._writer.author

    def settle(self) -> None:
        self._writer.settle()

    def begin(self, entry: CarrierLedgerEntry) -> None:
        self._writer.record(
            ExportBegin(
                operator=self._operator,
                bridge_id=self._bridge_id,
                n=entry.n,
                bundle_id=entry.bundle_id,
                source_hub_id=entry.hub_id,
                stream=entry.stream,
                from_seq=entry.from_seq,
                to_seq=entry.to_seq,
                checkpoint_id=entry.checkpoint_id,
                checkpoint_at=entry.created_at,
            )
        )

    def success(self, entry: CarrierLedgerEntry, proven: Proven) -> ExportSuccess:
        """The entry for a bundle that was written to the medium; ``finish`` records it."""
        header = proven.header
        return ExportSuccess(
            operator=self._operator,
            bundle_id=header.bundle_id or b"",
            sha256=proven.sha256,
            source_hub_id=entry.hub_id,
            stream=entry.stream,
            from_seq=entry.from_seq,
            to_seq=entry.to_seq,
            count=header.count,
            bridge_id=self._bridge_id,
            n=entry.n,
            checkpoint_id=entry.checkpoint_id,
            checkpoint_at=entry.created_at,
            root=proven.root,
            medium=self._medium,
        )

    def heartbeat(self, entry: CarrierLedgerEntry) -> ExportHeartbeat:
        return ExportHeartbeat(
            operator=self._operator,
            bridge_id=self._bridge_id,
            n=entry.n,
            source_hub_id=entry.hub_id,
            checkpoint_id=entry.checkpoint_id,
            checkpoint_at=entry.created_at,
            medium=self._medium,
        )

    def finish(self, event: ExportSuccess | ExportHeartbeat) -> None:
        self._writer.record(event)

    @contextmanager
    def failing(
        self, stream: str | None, entry: CarrierLedgerEntry | None = None
    ) -> Iterator[None]:
        """Record any error raised within, and re-raise it."""
        try:
            yield
        except AuditPending:
            raise
        except OSError as error:
            detail = f"{error.filename or 'staging'}: {error.strerror}; free space, and run again"
            failure = StagingFailed(detail)
            self._record(failure, stream, entry)
            raise failure from error
        except VeenError as error:
            self._record(error, stream, entry)
            raise

    def _record(
        self, error: VeenError, stream: str | None, entry: CarrierLedgerEntry | None
    ) -> None:
        failed = ExportFailed(
            operator=self._operator,
            bundle_id=entry.bundle_id if entry else None,
            source_hub_id=entry.hub_id if entry else None,
            stream=stream,
            from_seq=entry.from_seq if entry else None,
            to_seq=entry.to_seq if entry else None,
            code=_code(error),
            detail=printable(str(error), _MAX_DETAIL),
            offset=error.offset if isinstance(error, CarrierRefused | BadMedium) else None,
            medium=self._medium,
        )
        try:
            self._writer.record(failed)
        except AuditPending as pending:
            error.add_note(str(pending))


def _code(error: VeenError) -> str:
    """The code in the audit log; a renamed class has its first name as ``audit_code``."""
    if isinstance(error, CarrierRefused):
        return f"{error.fault.code.value}/{error.fault.detail_enum}"
    return str(getattr(error, "audit_code", type(error).__name__))


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """Mounted media in the order of the bags; bags beyond the last medium go to the last.

    ``medium_id`` is a label by which people identify this medium, or this set of media.
    """

    roots: tuple[Path, ...]
    medium_id: str
    discard_unfinished: bool = False


def deliver(
    staged: StagedCarrier, media: Media, progress: Progress = no_progress
) -> tuple[Path, ...]:
    """Write every bag to its medium, synced and read back, or raise BadMedium.

    The free space of all media is checked before the first byte is written. Each medium also gets
    the standalone verifier.
    """
    last = len(media.roots) - 1
    places = [(bag, media.roots[min(number, last)]) for number, bag in enumerate(staged.bags)]
    for medium in dict.fromkeys(media.roots):
        with _translate_errors(medium):
            missing = [
                bag for bag, of in places if of == medium and not _is_there(medium, bag.name)
            ]
            verify_free_space(missing, medium)
            has_verifier(medium)
    delivered = tuple(_deliver(bag, medium, media, progress) for bag, medium in places)
    for medium in dict.fromkeys(medium for _, medium in places):
        with _translate_errors(medium):
            put_verifier(medium)
    return delivered


def medium_id(roots: Sequence[Path]) -> str:
    """A default label for media, derived from their file systems."""
    return "+".join(
        dict.fromkeys(f"fs-{os.statvfs(root).f_fsid & (1 << 64) - 1:016x}" for root in roots)
    )


def _deliver(bag: Path, medium: Path, media: Media, progress: Progress) -> Path:
    """Write a bag to its medium, or verify it there if an earlier run completed it.

    Everything on the medium is opened by descriptor, so that no link leads elsewhere.
    """
    with _translate_errors(medium / FOLDER / bag.name):
        if _is_there(medium, bag.name):
            folder = BagPath(medium, (FOLDER,))
            with folder.open() as within:
                with within.directory(bag.name) as root:
                    if _is_finished(bag, root):
                        # An earlier run ended between its signature and the audit entry.
                        _verify_same_carrier(bag, root)
                        verify_written(bag, root, progress)
                        return root.path
                _discard(within, bag.name, media)
        return write_medium(bag, medium, progress)


def _is_there(medium: Path, name: str) -> bool:
    """Whether anything exists at the target of a bag; a link on the way there is an OSError."""
    with Directory.root(medium) as root:
        if not root.exists(FOLDER):
            return False
        with root.directory(FOLDER) as folder:
            return folder.exists(name)


def _is_finished(bag: Path, root: Directory) -> bool:
    """Whether the bag on the medium has a signature that is not a truncated copy of ours."""
    if not root.exists(SIGNATURE):
        return False
    signature = (bag / SIGNATURE).read_bytes()
    written = read_small(root, SIGNATURE, MAX_TAG_BYTES)
    return not (len(written) < len(signature) and signature.startswith(written))


@contextmanager
def _translate_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadMedium(
            f"{error.filename or place}: {error.strerror}; use another medium"
        ) from error
    except (NoSpace, SyncFailed) as error:
        # A failed sync is not retried: a second sync may wrongly report success.
        raise BadMedium(f"{place}: {error}; use another medium") from error


def _verify_same_carrier(bag: Path, root: Directory) -> None:
    """Refuse a bag of the same name with another content.

    A bridge that took a new identity gives its carriers the names they had before.
    """
    if (bag / TAGMANIFEST).read_bytes() != read_small(root, TAGMANIFEST, MAX_TAG_BYTES):
        raise BadMedium(
            f"{root.path} is another carrier of the same bundle, of an earlier identity of this "
            "bridge; use another medium"
        )


def _discard(folder: Directory, name: str, media: Media) -> None:
    if not media.discard_unfinished:
        raise BadMedium(
            f"{folder.path / name} is an unfinished carrier; use another medium, or run again "
            "with --discard-unfinished if the medium works"
        )
    shutil.rmtree(name, dir_fd=folder.fd)
