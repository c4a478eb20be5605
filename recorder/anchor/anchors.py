"""The port to a place outside of the hub that remembers roots (ANCHOR0.1).

The anchor_refs of a checkpoint, beside it, here and in object storage (ANCHOR0.2).

What is still to be done for an anchor: tried so often, failed so, tried again then.

A task ends with its anchor. That it failed before is counted for ever.

The book of anchors: which checkpoints are anchored, which are to be, and what went wrong.

Every step is on disk before the next: asked for, published, stored beside the checkpoint. After a
crash between two of them the step is done again; an anchor can be doubled by that, never lost.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from recorder.checkpoints.store import (
    AnchorCadence,
    CheckpointDirectory,
    CheckpointStore,
    HubPrefix,
    Lateness,
    RecorderCheckpointName,
    files,
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


class AnchorUnavailable(VeenError):
    """The place did not answer, or not with an anchor; later it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorProof:
    """What an anchor_ref was found to prove: this root was known to ``witness`` by ``time``.

    ``epoch``, ``ts`` and ``nonce`` are what was published with the root; ``time`` is the word of
    the witness, in seconds.
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
        """One word for this sort of anchor; every anchor_ref of it carries the word."""

    def publish(self, root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
        """Have the root remembered; the anchor_ref on return proves it for ever. Raises
        AnchorUnavailable when nothing, or nothing that can be shown, was remembered. Publishing
        the same again is allowed and gives another anchor_ref."""

    def verify(self, root: bytes, anchor_ref: bytes) -> AnchorProof:
        """What the anchor_ref proves of this root, without asking anyone over a network;
        Untrusted when it does not, Malformed when it is none."""


def anchor_digest(root: bytes, epoch: int, ts: int, nonce: bytes) -> bytes:
    """The one value that stands for all that is published."""
    return ht("veen/anchor", root, u64be(epoch), u64be(ts), nonce)


def kind_of(anchor_ref: bytes) -> str:
    """The kind that an anchor_ref names; nothing else of it is believed."""
    result = cbor.decode(anchor_ref)
    kind = result.get(2) if isinstance(result, dict) else None
    if not isinstance(kind, str):
        raise Malformed("not an anchor_ref: it names no kind of anchor")
    return kind


_NAME: Final = re.compile(r"([a-z0-9]+)-([0-9]{1,9})\.cbor")


class Ref(NamedTuple):
    kind: str
    number: int
    anchor_ref: bytes

    @property
    def name(self) -> str:
        return _name(self.kind, self.number)


class Refs:
    """Written once each; a checkpoint may have many, of one kind and of several."""

    def __init__(
        self, home: CheckpointDirectory, hub_id: bytes, objects: ObjectStore | None
    ) -> None:
        self._home = home
        self._prefix = HubPrefix(hub_id)
        self._objects = objects

    def add(self, checkpoint_id: bytes, kind: str, anchor_ref: bytes) -> Ref:
        """Keep it; the one who calls holds the home. Kept already, it is not kept again."""
        folder = self._home.anchors_of(checkpoint_id)
        known = {ref.number: ref for ref in read_refs(folder) if ref.kind == kind}
        same = [item for item in known.values() if item.anchor_ref == anchor_ref]
        number = same[0].number if same else max(known, default=0) + 1
        while not self._stored(checkpoint_id, kind, number, anchor_ref):
            number += 1
        durable.make_directory(folder)
        durable.sync_directory(folder.parent)
        durable.write_once(folder / _name(kind, number), anchor_ref)
        return Ref(kind, number, anchor_ref)

    def fetch(self, checkpoint_id: bytes) -> int:
        """Bring here what only object storage holds of one checkpoint; how many there were."""
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
        """Of these, in order of time, those after the last that has an anchor here.

        They are looked at from the newest on, and none before the one that is looked for.
        """
        for at in range(len(names), 0, -1):
            if files(self._home.anchors_of(names[at - 1].checkpoint_id)):
                return names[at:]
        return names

    def anchored(self) -> set[bytes]:
        """The ids of all checkpoints that have an anchor here; each has a folder to be read."""
        result = files(self._home.anchors)
        return {bytes.fromhex(name) for name in result if files(self._home.anchors / name)}

    def _stored(self, checkpoint_id: bytes, kind: str, number: int, anchor_ref: bytes) -> bool:
        """Whether object storage has it under that number now; another's may be there."""
        if self._objects is None:
            return True
        try:
            self._objects.put(self._prefix.anchors(checkpoint_id) + _name(kind, number), anchor_ref)
        except ObjectConflict:
            return False
        return True


def read_refs(folder: Path) -> list[Ref]:
    """The anchor_refs in a folder, by kind and number."""
    refs = [
        Ref(match[1], int(match[2]), (folder / match[0]).read_bytes())
        for match in map(_NAME.fullmatch, files(folder))
        if match is not None
    ]
    return sorted(refs)


def _name(kind: str, number: int) -> str:
    return f"{kind}-{number}.cbor"


_FIRST_WAIT_SEC: Final = 30
_LONGEST_WAIT_SEC: Final = 3_600
_MAX_ERROR_CHARS: Final = 500


class AnchorState(Enum):
    """``UNSTORED``: published, and on its way to where its checkpoint lies."""

    PENDING = "pending"
    FAILED = "failed"
    UNSTORED = "unstored"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorTask(WireMap):
    """``next_try`` is in seconds; ``anchor_ref`` is there once it was published."""

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
        """Tried again later, each time twice as late, for ever."""
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
    """All failures there ever were, and the last of them; ``last_at`` is in seconds."""

    ver: Version = 1
    count: int = 0
    last_at: int | None = None
    last_error: str | None = None

    def with_one(self, error: VeenError, now: int) -> AnchorFailures:
        detail = str(error)[:_MAX_ERROR_CHARS]
        return replace(self, count=self.count + 1, last_at=now, last_error=detail)


_LOG = logging.getLogger(__name__)
_FAILURES: Final = "anchor-failures.cbor"
EPOCH = 0
"""Recorder checkpoints are over streams without epochs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BookStatus:
    """``waiting`` are the checkpoints after the last anchored one; a later anchor covers them.

    ``failures`` counts all there ever were, ``attempts`` only those of what is still to be done.
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
    """What became of one task: its anchor, or why there is none yet."""

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
        """Have a checkpoint anchored; it is remembered until that is done."""
        task = AnchorTask(
            checkpoint_id=name.checkpoint_id,
            created_at=name.created_at,
            kind=self._anchor.kind,
            asked_at=now,
        )
        with self._home.held():
            if not (self._home.tasks / task.file).exists():
                self._keep(task)
        return task

    def ask_when_due(self, now: int) -> AnchorTask | None:
        """By the cadence: the newest checkpoint, which covers those before it."""
        names, covered = self._checkpoint_store.names(), self._refs.anchored()
        covered |= {task.checkpoint_id for task in self.tasks() if self._is_ours(task)}
        waiting = _after_last(names, covered)
        return self.ask(waiting[-1], now) if self._cadence.is_due(now, waiting) else None

    def work(self, now: int) -> list[AnchorOutcome]:
        """Do every task whose time has come.

        One of a kind that is not configured any more stays, and is counted.
        """
        due = [task for task in self.tasks() if task.next_try <= now and self._is_ours(task)]
        return [self.do(task, now) for task in due]

    def do(self, task: AnchorTask, now: int) -> AnchorOutcome:
        """Publish what a task asks for, and store it; a failure is kept with the task."""
        with self._home.held():
            stored = self._kept_refs(task)
            if stored is None:
                done = [ref for ref in self._refs.of(task.checkpoint_id) if ref.kind == task.kind]
                return AnchorOutcome(task, done[-1] if done else None, None)
            try:
                ref = self._stored(stored)
            except (AnchorUnavailable, StoreError, NoSpace, Untrusted, Malformed) as error:
                return self._failed(task, error, now)
            (self._home.tasks / task.file).unlink(missing_ok=True)
            durable.sync_directory(self._home.tasks)
        _LOG.info("checkpoint %s is anchored as %s", task.checkpoint_id.hex(), ref.name)
        return AnchorOutcome(task, ref, None)

    def tasks(self) -> list[AnchorTask]:
        """All that is still to be done, the oldest checkpoint first."""
        anchor_tasks = (self._task(file) for file in files(self._home.tasks))
        return [task for task in anchor_tasks if task is not None]

    def status(self, now: int) -> BookStatus:
        names, anchored, tasks = self._checkpoint_store.names(), self._refs.anchored(), self.tasks()
        waiting = _after_last(names, anchored)
        states = [task.state for task in tasks]
        troubled = [task for task in tasks if task.attempts]
        return BookStatus(
            checkpoints=len(names),
            anchored=sum(name.checkpoint_id in anchored for name in names),
            waiting=len(waiting),
            oldest_waiting=waiting[0] if waiting else None,
            pending=states.count(AnchorState.PENDING),
            failed=states.count(AnchorState.FAILED),
            unstored=states.count(AnchorState.UNSTORED),
            attempts=sum(task.attempts for task in tasks),
            failures=anchor_failures(self._home).count,
            last_error=troubled[-1].last_error if troubled else None,
            next_try=min((task.next_try for task in tasks), default=None),
            lateness=self._cadence.lateness(now, waiting),
        )

    def _is_ours(self, task: AnchorTask) -> bool:
        return task.kind == self._anchor.kind or task.anchor_ref is not None

    def _stored(self, task: AnchorTask) -> Ref:
        """The anchor beside its checkpoint, published if it was not yet."""
        ref = task.anchor_ref
        if ref is None:
            document = self._checkpoint_store.get(
                RecorderCheckpointName(task.created_at, task.checkpoint_id)
            )
            ref = publish_anchor(self._anchor, document)
            self._keep(task.published(ref))
        return self._refs.add(task.checkpoint_id, task.kind, ref)

    def _failed(self, task: AnchorTask, error: VeenError, now: int) -> AnchorOutcome:
        durable.write(
            self._home.root / _FAILURES, anchor_failures(self._home).with_one(error, now).encode()
        )
        failed = (self._kept_refs(task) or task).failed(error, now)
        self._keep(failed)
        _LOG.warning("checkpoint %s is not anchored yet: %s", task.checkpoint_id.hex(), error)
        return AnchorOutcome(failed, None, error)

    def _kept_refs(self, task: AnchorTask) -> AnchorTask | None:
        return self._task(task.file)

    def _task(self, file: str) -> AnchorTask | None:
        """A task as it stands on disk; None when another process has done it."""
        path = self._home.tasks / file
        try:
            return AnchorTask.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except Malformed as error:
            raise Malformed(f"{path}: {error}; remove it and publish again") from error

    def _keep(self, task: AnchorTask) -> None:
        durable.write(self._home.tasks / task.file, task.encode())


def anchor_failures(home: CheckpointDirectory) -> AnchorFailures:
    """Those of all that was ever tried here."""
    path = home.root / _FAILURES
    try:
        return AnchorFailures.decode(path.read_bytes())
    except FileNotFoundError:
        return AnchorFailures()
    except Malformed as error:
        raise Malformed(f"{path}: {error}; remove it, and the count begins anew") from error


def publish_anchor(anchor: Anchor, document: RecorderCheckpoint) -> bytes:
    """The nonce is the id of the document, so that the anchor is of all that the hub signed."""
    return anchor.publish(document.log_root, EPOCH, document.created_at, document.checkpoint_id)


def verify_anchors(anchor: Anchor, document: RecorderCheckpoint, anchor_ref: bytes) -> AnchorProof:
    """Refuse an anchor_ref that is not of this very document."""
    result = anchor.verify(document.log_root, anchor_ref)
    expected = (EPOCH, document.created_at, document.checkpoint_id)
    if (result.epoch, result.ts, result.nonce) != expected:
        raise Untrusted(
            f"the anchor is of a recorder checkpoint with the same root, made at {result.ts}, "
            f"and not of {document.checkpoint_id.hex()}"
        )
    return result


def _after_last(
    names: list[RecorderCheckpointName], covered: set[bytes]
) -> list[RecorderCheckpointName]:
    last = max((n for n, name in enumerate(names) if name.checkpoint_id in covered), default=-1)
    return names[last + 1 :]
