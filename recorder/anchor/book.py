"""The book of anchors: which checkpoints are anchored, which are to be, and what went wrong.

Every step is on disk before the next: asked for, published, stored beside the checkpoint. After a
crash between two of them the step is done again; an anchor can be doubled by that, never lost.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from recorder.anchor.port import Anchor, Anchored, AnchorUnavailable
from recorder.anchor.refs import Ref, Refs
from recorder.anchor.task import AnchorFailures, AnchorTask, State
from recorder.checkpoints.cadence import AnchorCadence, Lateness
from recorder.checkpoints.home import CheckpointName, Home, files
from recorder.checkpoints.shelf import Shelf
from veen import durable
from veen.durable import NoSpace
from veen.errors import Malformed, Untrusted, VeenError
from veen.objects.port import StoreError
from veen.recorder_checkpoint import RecorderCheckpoint

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
    oldest_waiting: CheckpointName | None
    pending: int
    failed: int
    unstored: int
    attempts: int
    failures: int
    last_error: str | None
    next_try: int | None
    lateness: Lateness


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one task: its anchor, or why there is none yet."""

    task: AnchorTask
    ref: Ref | None
    error: VeenError | None


class Book:
    def __init__(self, shelf: Shelf, refs: Refs, anchor: Anchor, cadence: AnchorCadence) -> None:
        self._shelf = shelf
        self._home = shelf.home
        self._refs = refs
        self._anchor = anchor
        self._cadence = cadence

    def ask(self, name: CheckpointName, now: int) -> AnchorTask:
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
        names, covered = self._shelf.names(), self._refs.anchored()
        covered |= {task.checkpoint_id for task in self.tasks() if self._is_ours(task)}
        waiting = _after_last(names, covered)
        return self.ask(waiting[-1], now) if self._cadence.is_due(now, waiting) else None

    def work(self, now: int) -> list[Outcome]:
        """Do every task whose time has come.

        One of a kind that is not configured any more stays, and is counted.
        """
        due = [task for task in self.tasks() if task.next_try <= now and self._is_ours(task)]
        return [self.do(task, now) for task in due]

    def do(self, task: AnchorTask, now: int) -> Outcome:
        """Publish what a task asks for, and store it; a failure is kept with the task."""
        with self._home.held():
            kept = self._kept(task)
            if kept is None:
                done = [ref for ref in self._refs.of(task.checkpoint_id) if ref.kind == task.kind]
                return Outcome(task, done[-1] if done else None, None)
            try:
                ref = self._stored(kept)
            except (AnchorUnavailable, StoreError, NoSpace, Untrusted, Malformed) as error:
                return self._failed(task, error, now)
            (self._home.tasks / task.file).unlink(missing_ok=True)
            durable.sync_directory(self._home.tasks)
        _LOG.info("checkpoint %s is anchored as %s", task.checkpoint_id.hex(), ref.name)
        return Outcome(task, ref, None)

    def tasks(self) -> list[AnchorTask]:
        """All that is still to be done, the oldest checkpoint first."""
        kept = (self._task(file) for file in files(self._home.tasks))
        return [task for task in kept if task is not None]

    def status(self, now: int) -> BookStatus:
        names, anchored, tasks = self._shelf.names(), self._refs.anchored(), self.tasks()
        waiting = _after_last(names, anchored)
        states = [task.state for task in tasks]
        troubled = [task for task in tasks if task.attempts]
        return BookStatus(
            checkpoints=len(names),
            anchored=sum(name.checkpoint_id in anchored for name in names),
            waiting=len(waiting),
            oldest_waiting=waiting[0] if waiting else None,
            pending=states.count(State.PENDING),
            failed=states.count(State.FAILED),
            unstored=states.count(State.UNSTORED),
            attempts=sum(task.attempts for task in tasks),
            failures=failures(self._home).count,
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
            document = self._shelf.get(CheckpointName(task.created_at, task.checkpoint_id))
            ref = publish(self._anchor, document)
            self._keep(task.published(ref))
        return self._refs.add(task.checkpoint_id, task.kind, ref)

    def _failed(self, task: AnchorTask, error: VeenError, now: int) -> Outcome:
        durable.write(
            self._home.root / _FAILURES, failures(self._home).with_one(error, now).encode()
        )
        failed = (self._kept(task) or task).failed(error, now)
        self._keep(failed)
        _LOG.warning("checkpoint %s is not anchored yet: %s", task.checkpoint_id.hex(), error)
        return Outcome(failed, None, error)

    def _kept(self, task: AnchorTask) -> AnchorTask | None:
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


def failures(home: Home) -> AnchorFailures:
    """Those of all that was ever tried here."""
    path = home.root / _FAILURES
    try:
        return AnchorFailures.decode(path.read_bytes())
    except FileNotFoundError:
        return AnchorFailures()
    except Malformed as error:
        raise Malformed(f"{path}: {error}; remove it, and the count begins anew") from error


def publish(anchor: Anchor, document: RecorderCheckpoint) -> bytes:
    """The nonce is the id of the document, so that the anchor is of all that the hub signed."""
    return anchor.publish(document.log_root, EPOCH, document.created_at, document.checkpoint_id)


def verify(anchor: Anchor, document: RecorderCheckpoint, anchor_ref: bytes) -> Anchored:
    """Refuse an anchor_ref that is not of this very document."""
    found = anchor.verify(document.log_root, anchor_ref)
    expected = (EPOCH, document.created_at, document.checkpoint_id)
    if (found.epoch, found.ts, found.nonce) != expected:
        raise Untrusted(
            f"the anchor is of a recorder checkpoint with the same root, made at {found.ts}, "
            f"and not of {document.checkpoint_id.hex()}"
        )
    return found


def _after_last(names: list[CheckpointName], covered: set[bytes]) -> list[CheckpointName]:
    last = max((n for n, name in enumerate(names) if name.checkpoint_id in covered), default=-1)
    return names[last + 1 :]
