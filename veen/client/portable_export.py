"""Writing a portable set: what a hub holds of some streams, verified on its way (spec 15)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from veen import durable
from veen.captoken import CapToken
from veen.client import epochs, portable_set, trust
from veen.client.checkpoints import checkpoints, verify
from veen.client.errors import HubRefused
from veen.client.head import first_readable, head, is_missing, is_readable, receipt_at
from veen.client.pages import Range
from veen.client.pair import Log, Pair
from veen.client.portable_set import LabelState, SyncState
from veen.client.progress import Progress, untold
from veen.client.replay import own_client_ids, replay
from veen.client.session import Session
from veen.errors import Untrusted, VeenError
from veen.label import EpochLabels
from veen.receipt import Receipt

MAX_TOKENS = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    labels: int
    pairs: int
    checkpoints: int
    tokens: int
    attachments: int


def export(
    session: Session,
    streams: Sequence[tuple[str, EpochLabels]],
    out: Path,
    progress: Progress = untold,
) -> Exported:
    """A set of some streams at ``out``, which is there whole or not at all."""
    if os.path.lexists(out):
        raise VeenError(f"{out} exists: a portable set is written once, take another name")
    work = out.with_name(f".{out.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=durable.DIR_MODE)
    try:
        with ExitStack() as files:
            done = _Export(session, work, files, progress).streams(streams)
        _seal(work)
        work.rename(out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    durable.sync_directory(out.parent)
    return done


class _Export:
    def __init__(self, session: Session, work: Path, files: ExitStack, progress: Progress) -> None:
        self._session = session
        self._progress = progress
        self._work = work
        self._receipts, self._payloads, self._checkpoints = (
            files.enter_context(_sequence(work / name))
            for name in (portable_set.RECEIPTS, portable_set.PAYLOADS, portable_set.CHECKPOINTS)
        )
        self._own = own_client_ids(session.identity)
        self._auth_refs: dict[bytes, None] = {}
        self._pairs = self._checked = 0

    def streams(self, streams: Sequence[tuple[str, EpochLabels]]) -> Exported:
        status = self._session.api.status()
        identity = trust.followed(self._session.hub, status.identity())
        self._put(portable_set.IDENTITY, identity.encode())
        self._put(portable_set.IDENTITY_SIG, status.identity_sig)
        for name in (portable_set.CARD, portable_set.KEYSTORE):
            self._put(name, portable_set.small(self._session.root / name))
        logs = (log for name, one in streams for log in epochs.logs(self._session, one, name))
        states = tuple(state for log in logs if (state := self._log(log)) is not None)
        url = self._session.api.transport.url
        sync = SyncState(hub_url=url, limits=status.limits, labels=states)
        self._put(portable_set.SYNC_STATE, sync.encode())
        return Exported(
            labels=len(states),
            pairs=self._pairs,
            checkpoints=self._checked,
            tokens=self._tokens(),
            attachments=self._attachments(),
        )

    def _log(self, log: Log) -> LabelState | None:
        end = head(self._session, log, 0)
        if end is None:
            return None
        first = 1
        if not is_readable(self._session, log, 1):
            first = first_readable(self._session, log, 1, end.stream_seq)
        ahead = checkpoints(self._session, log, first)
        due, last = next(ahead, None), end
        for pair in self._replayed(log, first, end.stream_seq):
            self._pair(pair)
            last = pair.receipt
            if due is not None and due.upto_seq == last.stream_seq:
                verify(self._session, log, due, last)
                self._checkpoints.write(due.encode())
                self._checked, due = self._checked + 1, next(ahead, None)
        return LabelState(
            stream=log.name,
            profile=log.labels.profile,
            epoch=log.epoch,
            label=log.label,
            first_seq=first,
            peaks_before=self._peaks_before(log, first),
            last_stream_seq=last.stream_seq,
            last_mmr_root=last.mmr_root,
        )

    def _replayed(self, log: Log, first: int, last: int) -> Iterator[Pair]:
        for page in replay(self._session, log, Range(from_seq=first, to_seq=last)):
            yield from page
            self._progress(self._pairs, None)

    def _pair(self, pair: Pair) -> None:
        self._receipts.write(pair.receipt.encode())
        self._payloads.write(pair.msg.encode())
        self._pairs += 1
        auth_ref = pair.msg.auth_ref
        if pair.msg.client_id in self._own and auth_ref and len(self._auth_refs) < MAX_TOKENS:
            self._auth_refs[auth_ref] = None

    def _peaks_before(self, log: Log, first: int) -> tuple[bytes, ...]:
        if first == 1:
            return ()
        receipt: Receipt = receipt_at(self._session, log, first)
        proof = self._session.api.consistency(log.label, first - 1, first)
        proof.verify_after(proof.before(), size=first, root=receipt.mmr_root)
        return proof.peaks_before

    def _tokens(self) -> int:
        """The capabilities of our own messages, as far as the hub still knows them."""
        found = [token for one in self._auth_refs if (token := self._token(one)) is not None]
        self._put(portable_set.CAP_TOKENS, b"".join(one.encode() for one in found))
        return len(found)

    def _token(self, auth_ref: bytes) -> CapToken | None:
        try:
            found = self._session.api.capability(auth_ref).token
        except HubRefused as error:
            if not is_missing(error):
                raise
            return None
        if found.auth_ref() != auth_ref:
            raise Untrusted(f"the hub sent another capability than {auth_ref.hex()}")
        return found

    def _attachments(self) -> int:
        """Those the client holds; a file that is not what its name says stops the export."""
        into = self._work / portable_set.ATTACHMENTS
        into.mkdir(mode=durable.DIR_MODE)
        found = sorted((self._session.root / portable_set.ATTACHMENTS).glob("[0-9a-f]" * 64))
        for path in found:
            durable.write(into / path.name, portable_set.attachment(path))
        return len(found)

    def _put(self, name: str, raw: bytes) -> None:
        durable.write(self._work / name, raw)


@contextmanager
def _sequence(path: Path) -> Iterator[BinaryIO]:
    with path.open("xb") as file:
        path.chmod(durable.FILE_MODE)
        yield file
        file.flush()
        durable.sync(file.fileno())


def _seal(work: Path) -> None:
    manifest = portable_set.manifest_of(work)
    durable.write(work / portable_set.MANIFEST, manifest.encode())
    durable.sync_directory(work)
