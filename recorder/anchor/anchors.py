"""Anchors of recorder checkpoints outside the hub: port, references, tasks, scheduler (ANCHOR0).

An ``Anchor`` publishes roots at an external service and verifies the references it returns. The
references are stored beside the checkpoint, locally and in object storage. Each pending anchor is
a task on disk with its attempts, its last error and the time of its next retry; the task is
deleted once its reference is stored, and the total number of failures is never reset.

Every step is durable before the next one: requested, published, stored. After a crash between two
steps the step is repeated, so an anchor can be published twice but is never lost.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from recorder.checkpoints.catalogue import RecorderCheckpointName, files
from recorder.checkpoints.store import (
    AnchorCadence,
    CheckpointDirectory,
    CheckpointStore,
    HubPrefix,
    Lateness,
)
from veen.digest import ht, u64be
from veen.errors import Malformed, Untrusted, VeenError
from veen.objects.port import ObjectConflict, ObjectStore, StoreError
from veen.recorder_checkpoint import RecorderCheckpoint
from veen.system import durable
from veen.system.durable import NoSpace
from veen.wire import cbor
from veen.wire.objects import WireMap
from veen.wire.schema import Bytes32, Version

_LOG = logging.getLogger(__name__)

_NAME: Final = re.compile(r"([a-z0-9]+)-([0-9]{1,9})\.cbor")
_FIRST_WAIT_SEC: Final = 30
_LONGEST_WAIT_SEC: Final = 3_600
_MAX_ERROR_CHARS: Final = 500
_FAILURES: Final = "anchor-failures.cbor"
EPOCH = 0
"""Recorder checkpoints are over streams without epochs."""


class AnchorUnavailable(VeenError):
    """The anchoring service did not answer, or not with a valid anchor; retry later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorProof:
    """What a verified anchor_ref proves: ``witness`` knew this root at ``time``.

    ``epoch``, ``ts`` and ``nonce`` were published with the root; ``time`` is stated by the witness,
    in seconds.
    """

    kind: str
    root: bytes
    epoch: int
    ts: int
    nonce: bytes
    time: int
    witness: str
    place: str


class Anchor(Protocol):
    @property
    def kind(self) -> str:
        """A short name of this kind of anchor; every anchor_ref of it carries the name."""

    def publish(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Publish a root and return its anchor_ref, which proves it permanently.

        Raises AnchorUnavailable when nothing verifiable was published. Publishing the same root
        again is allowed and gives another anchor_ref.
        """

    def verify(self, root: bytes, anchor_ref: bytes) -> AnchorProof:
        """Return what the anchor_ref proves of this root, without any network access.

        Raises Untrusted when it does not, Malformed when it is not an anchor_ref.
        """


def anchor_digest(root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
    """Hash of everything that is published with a root."""
    return ht("veen/anchor", root, u64be(epoch), u64be(ts), nonce)


def kind_of(anchor_ref: bytes) -> str:
    """Return the kind that an anchor_ref names, without verifying it."""
    document = cbor.decode(anchor_ref)
    kind = document.get(2) if isinstance(document, dict) else None
    if not isinstance(kind, str):
        raise Malformed("anchor_ref: expected the kind of an anchor, got none")
    return kind


class Ref(NamedTuple):
    kind: str
    number: int
    anchor_ref: bytes

    @property
    def name(self) -> str:
        return _name(self.kind, self.number)


class Refs:
    """The anchor_refs of checkpoints, each written once.

    A checkpoint may have several of each kind.
    """

    def __init__(
        self, home: CheckpointDirectory, hub_id: bytes, objects: ObjectStore | None
    ) -> None:
        self._home = home
        self._prefix = HubPrefix(hub_id)
        self._objects = objects

    def add(self, checkpoint_id: bytes, kind: str, anchor_ref: bytes) -> Ref:
        """Store an anchor_ref unless it is stored already.

        The caller holds the directory's lock.
        """
        folder = self._home.anchors_of(checkpoint_id)
        known = {ref.number: ref for ref in read_refs(folder) if ref.kind == kind}
        same = [ref for ref in known.values() if ref.anchor_ref == anchor_ref]
        number = same[0].number if same else max(known, default=0) + 1
        while not self._stored(checkpoint_id, kind, number, anchor_ref):
            number += 1
        durable.make_directory(folder)
        durable.sync_directory(folder.parent)
        durable.write_once(folder / _name(kind, number), anchor_ref)
        return Ref(kind, number, anchor_ref)

    def fetch(self, checkpoint_id: bytes) -> int:
        """Copy anchor_refs of a checkpoint that only object storage holds; return how many."""
        if self._objects is None:
            return 0
        prefix, folder = self._prefix.anchors(checkpoint_id), self._home.anchors_of(checkpoint_id)
        known, fetched = set(files(folder)), 0
        with self._home.held():
            for key in self._objects.keys(prefix):
                name = key.removeprefix(prefix)
                if name in known or not _NAME.fullmatch(name):
                    continue
                durable.make_directory(folder)
                durable.write_once(folder / name, self._objects.get(key))
                fetched += 1
        return fetched

    def of(self, checkpoint_id: bytes) -> list[Ref]:
        return read_refs(self._home.anchors_of(checkpoint_id))

    def after_last(
        self, names: Sequence[RecorderCheckpointName]
    ) -> Sequence[RecorderCheckpointName]:
        """Return the part of ``names``, by time, after the last that has an anchor here."""
        return names[len(names) - len(self.waiting(reversed(names))) :]

    def waiting(
        self,
        newest_first: Iterable[RecorderCheckpointName],
        covered: AbstractSet[bytes] = frozenset(),
    ) -> list[RecorderCheckpointName]:
        """Return the names after the last that has an anchor here or is covered, by time.

        The search starts at the newest, so that older names and directories are not read.
        """
        waiting: list[RecorderCheckpointName] = []
        for name in newest_first:
            if name.checkpoint_id in covered or files(self._home.anchors_of(name.checkpoint_id)):
                break
            waiting.append(name)
        return waiting[::-1]

    def anchored(self) -> set[bytes]:
        """Return the ids of all checkpoints with an anchor here; lists one directory for each."""
        names = files(self._home.anchors)
        return {bytes.fromhex(name) for name in names if files(self._home.anchors / name)}

    def _stored(self, checkpoint_id: bytes, kind: str, number: int, anchor_ref: bytes) -> bool:
        """Put it to object storage under that number; False when the number is taken."""
        if self._objects is None:
            return True
        try:
            self._objects.put(self._prefix.anchors(checkpoint_id) + _name(kind, number), anchor_ref)
        except ObjectConflict:
            return False
        return True


def read_refs(folder: Path) -> list[Ref]:
    """Return the anchor_refs of a directory, by kind and number."""
    refs = [
        Ref(match[1], int(match[2]), (folder / match[0]).read_bytes())
        for match in map(_NAME.fullmatch, files(folder))
        if match is not None
    ]
    return sorted(refs)


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number}.cbor"


class AnchorState(Enum):
    """State of an anchor task.

    ``UNSTORED`` is published, but not yet stored beside its checkpoint.
    """

    PENDING = "pending"
    FAILED = "failed"
    UNSTORED = "unstored"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorTask(WireMap):
    """A pending anchor. ``next_try`` is in seconds; ``anchor_ref`` is set once it is published."""

    ver: Version = 1
    checkpoint_id: Bytes32
    created_at: int
    kind: str
    asked_at: int
    attempts: int = 0
    next_try: int = 0
    last_error: str | None = None
    anchor_ref: bytes | None = None

    @property
    def state(self) -> AnchorState:
        if self.anchor_ref is not None:
            return AnchorState.UNSTORED
        return AnchorState.FAILED if self.attempts else AnchorState.PENDING

    @property
    def file(self) -> str:
        return f"{self.created_at:020d}-{self.checkpoint_id.hex()}-{self.kind}.cbor"

    def failed(self, error: VeenError, now: int) -> AnchorTask:
        """Schedule the next attempt with exponential backoff and no last attempt."""
        wait = min(_LONGEST_WAIT_SEC, _FIRST_WAIT_SEC << min(self.attempts, 16))
        return replace(
            self,
            attempts=self.attempts + 1,
            next_try=now + wait,
            last_error=str(error)[:_MAX_ERROR_CHARS],
        )

    def published(self, anchor_ref: bytes) -> AnchorTask:
        return replace(self, anchor_ref=anchor_ref, next_try=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorFailures(WireMap):
    """The number of all failures so far, and the last of them; ``last_at`` is in seconds."""

    ver: Version = 1
    count: int = 0
    last_at: int | None = None
    last_error: str | None = None

    def with_one(self, error: VeenError, now: int) -> AnchorFailures:
        text = str(error)[:_MAX_ERROR_CHARS]
        return replace(self, count=self.count + 1, last_at=now, last_error=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorStatus:
    """Counts of checkpoints and anchor tasks.

    ``waiting`` are the checkpoints after the last anchored checkpoint; a later anchor covers them.
    ``failures`` counts all failures so far, ``attempts`` only those of pending tasks.
    """

    checkpoints: int
    anchored: int
    waiting: int
    oldest_waiting: RecorderCheckpointName | None
    pending: int
    failed: int
    unstored: int
    attempts: int
    failures: int
    last_error: str | None
    next_try: int | None
    lateness: Lateness


@dataclass(frozen=True, slots=True)
class AnchorOutcome:
    """The outcome of a task: its anchor, or the error."""

    task: AnchorTask
    ref: Ref | None
    error: VeenError | None


class AnchorScheduler:
    def __init__(
        self, checkpoint_store: CheckpointStore, refs: Refs, anchor: Anchor, cadence: AnchorCadence
    ) -> None:
        self._checkpoint_store = checkpoint_store
        self._home = checkpoint_store.home
        self._refs = refs
        self._anchor = anchor
        self._cadence = cadence

    def ask(self, name: RecorderCheckpointName, now: int) -> AnchorTask:
        """Add a task that anchors a checkpoint; it is durable until it is done."""
        task = AnchorTask(
            checkpoint_id=name.checkpoint_id,
            created_at=name.created_at,
            kind=self._anchor.kind,
            asked_at=now,
        )
        with self._home.held():
            if not (self._home.tasks / task.file).exists():
                self._write(task)
        return task

    def ask_when_due(self, now: int) -> AnchorTask | None:
        """Add a task for the newest checkpoint, which covers earlier ones, when the cadence says
        so."""
        covered = {task.checkpoint_id for task in self.tasks() if self._is_ours(task)}
        with closing(self._checkpoint_store.newest_first()) as names:
            waiting = self._refs.waiting(names, covered)
        return self.ask(waiting[-1], now) if self._cadence.is_due(now, waiting) else None

    def work(self, now: int) -> list[AnchorOutcome]:
        """Run every task whose time has come.

        A task of a kind that is no longer configured stays, and is counted.
        """
        due = [task for task in self.tasks() if task.next_try <= now and self._is_ours(task)]
        return [self.do(task, now) for task in due]

    def do(self, task: AnchorTask, now: int) -> AnchorOutcome:
        """Publish the anchor of a task and store its reference.

        A failure is stored with the task.
        """
        with self._home.held():
            current = self._reload(task)
            if current is None:
                refs = [ref for ref in self._refs.of(task.checkpoint_id) if ref.kind == task.kind]
                return AnchorOutcome(task, refs[-1] if refs else None, None)
            try:
                ref = self._store_ref(current)
            except (AnchorUnavailable, StoreError, NoSpace, Untrusted, Malformed) as error:
                return self._failed(task, error, now)
            (self._home.tasks / task.file).unlink(missing_ok=True)
            durable.sync_directory(self._home.tasks)
        _LOG.info("checkpoint %s is anchored as %s", task.checkpoint_id.hex(), ref.name)
        return AnchorOutcome(task, ref, None)

    def tasks(self) -> list[AnchorTask]:
        """Return all pending tasks, the oldest checkpoint first."""
        anchor_tasks = (self._task(file) for file in files(self._home.tasks))
        return [task for task in anchor_tasks if task is not None]

    def status(self, now: int) -> AnchorStatus:
        names, anchored, tasks = self._checkpoint_store.names(), self._refs.anchored(), self.tasks()
        waiting = _after_last(names, anchored)
        states = [task.state for task in tasks]
        retried = [task for task in tasks if task.attempts]
        return AnchorStatus(
            checkpoints=len(names),
            anchored=sum(name.checkpoint_id in anchored for name in names),
            waiting=len(waiting),
            oldest_waiting=waiting[0] if waiting else None,
            pending=states.count(AnchorState.PENDING),
            failed=states.count(AnchorState.FAILED),
            unstored=states.count(AnchorState.UNSTORED),
            attempts=sum(task.attempts for task in tasks),
            failures=anchor_failures(self._home).count,
            last_error=retried[-1].last_error if retried else None,
            next_try=min((task.next_try for task in tasks), default=None),
            lateness=self._cadence.lateness(now, waiting),
        )

    def _is_ours(self, task: AnchorTask) -> bool:
        return task.kind == self._anchor.kind or task.anchor_ref is not None

    def _store_ref(self, task: AnchorTask) -> Ref:
        """Store the reference beside its checkpoint, after publishing it if necessary."""
        ref = task.anchor_ref
        if ref is None:
            document = self._checkpoint_store.get(
                RecorderCheckpointName(task.created_at, task.checkpoint_id)
            )
            ref = publish_anchor(self._anchor, document)
            self._write(task.published(ref))
        return self._refs.add(task.checkpoint_id, task.kind, ref)

    def _failed(self, task: AnchorTask, error: VeenError, now: int) -> AnchorOutcome:
        durable.write(
            self._home.root / _FAILURES, anchor_failures(self._home).with_one(error, now).encode()
        )
        failed = (self._reload(task) or task).failed(error, now)
        self._write(failed)
        _LOG.warning("checkpoint %s is not anchored yet: %s", task.checkpoint_id.hex(), error)
        return AnchorOutcome(failed, None, error)

    def _reload(self, task: AnchorTask) -> AnchorTask | None:
        return self._task(task.file)

    def _task(self, file: str) -> AnchorTask | None:
        """Read a task from disk; None when another process has completed it."""
        path = self._home.tasks / file
        try:
            return AnchorTask.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except Malformed as error:
            raise Malformed(f"{path}: {error}; remove it and publish again") from error

    def _write(self, task: AnchorTask) -> None:
        durable.write(self._home.tasks / task.file, task.encode())


def anchor_failures(home: CheckpointDirectory) -> AnchorFailures:
    """Return the failures of all anchors ever attempted in this directory."""
    path = home.root / _FAILURES
    try:
        return AnchorFailures.decode(path.read_bytes())
    except FileNotFoundError:
        return AnchorFailures()
    except Malformed as error:
        raise Malformed(f"{path}: {error}; remove it, and the count starts again at 0") from error


def publish_anchor(anchor: Anchor, document: RecorderCheckpoint) -> bytes:
    """Publish a checkpoint's root.

    The nonce is the checkpoint_id, so that the anchor covers all the hub signed.
    """
    return anchor.publish(document.log_root, EPOCH, document.created_at, document.checkpoint_id)


def verify_anchors(anchor: Anchor, document: RecorderCheckpoint, anchor_ref: bytes) -> AnchorProof:
    """Verify that an anchor_ref is of this checkpoint and no other."""
    proof = anchor.verify(document.log_root, anchor_ref)
    expected = (EPOCH, document.created_at, document.checkpoint_id)
    if (proof.epoch, proof.ts, proof.nonce) != expected:
        raise Untrusted(
            f"expected an anchor of recorder checkpoint {document.checkpoint_id.hex()}, got one of "
            f"another checkpoint with the same root, made at {proof.ts}"
        )
    return proof


def _after_last(
    names: list[RecorderCheckpointName], covered: set[bytes]
) -> list[RecorderCheckpointName]:
    last = max((n for n, name in enumerate(names) if name.checkpoint_id in covered), default=-1)
    return names[last + 1 :]
