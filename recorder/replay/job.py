"""One replay from source to output: planned or taken up again, run, and told of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from recorder.replay import output
from recorder.replay.course import Course
from recorder.replay.output import FileSink, OutputExists, PipeSink, Sink
from recorder.replay.plan import Plan, plan
from recorder.replay.record import Form
from recorder.replay.run import run
from recorder.replay.source import Source
from recorder.replay.wanted import Wanted
from veen.client.progress import Progress, untold
from veen.errors import VeenError
from veen.recorder_checkpoint import RecorderCheckpoint


class OtherReplay(VeenError):
    """The output that is to be taken up again is of another replay."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """``new`` is what this run has written, and ``kinds`` what it was."""

    plan: Plan
    new: int
    kinds: dict[str, int]


Choose = Callable[[], RecorderCheckpoint]
"""The checkpoint to prove against, asked for when no earlier run has chosen it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """``chosen`` is the checkpoint that was named; without it an output keeps to its own.

    What is wanted may depend on the checkpoint, as all of its streams do.
    """

    source: Source
    wanted: Callable[[RecorderCheckpoint], Wanted]
    latest: Choose
    chosen: RecorderCheckpoint | None = None
    progress: Progress = untold

    def to_pipe(self, pipe: BinaryIO, form: Form) -> Replayed:
        course = Course(self._plan())
        sink = PipeSink(pipe, form, course.plan)
        sink.put(course.plan)
        return self._run(course, sink)

    def to_file(self, path: Path, form: Form, *, resume: bool) -> Replayed:
        course, size = self._found(path, form, resume=resume)
        if course is None:
            course = Course(self._plan())
        else:
            self._verify_same(path, course.plan)
        sink = FileSink(path, form, course.plan, size)
        if size == 0:
            sink.put(course.plan)
        return self._run(course, sink)

    def to_parts(self, folder: Path, *, resume: bool) -> Replayed:
        # It takes a third of a second to load, and only Parquet needs it.
        from recorder.replay import parquet_parts  # noqa: PLC0415

        known = parquet_parts.plan_in(folder)
        if known is not None and not resume:
            raise _exists(folder)
        if known is not None:
            self._verify_same(folder, known)
        found = known or self._plan()
        course = parquet_parts.course_in(folder, found) if known else Course(found)
        return self._run(course, parquet_parts.ParquetSink(folder, course))

    def _run(self, course: Course, sink: Sink) -> Replayed:
        before, count = course.done, course.plan.count
        done = before
        try:
            for record in run(self.source, course):
                sink.put(record)
                if course.done != done:
                    done = course.done
                    self.progress(done, count)
            sink.close()
        except BaseException:
            sink.abandon()
            raise
        return Replayed(course.plan, course.done - before, dict(course.kinds))

    def _plan(self) -> Plan:
        checkpoint = self.chosen or self.latest()
        return plan(self.source, self.wanted(checkpoint), checkpoint)

    def _found(self, path: Path, form: Form, *, resume: bool) -> tuple[Course | None, int]:
        if not path.exists():
            return None, 0
        if not resume:
            raise _exists(path)
        course, size = output.course_of(path, form)
        if course is None:
            output.refuse_foreign(path, form)
        return course, size

    def _verify_same(self, path: Path, known: Plan) -> None:
        """What is there must be what would be there after the same words."""
        known.verify(self.source.hub.hub_id)
        wanted = self.wanted(known.checkpoint)
        if known.wanted != wanted:
            differences = _differences(known.wanted, wanted)
            raise OtherReplay(f"{path} is the output of another replay: {differences}")
        if self.chosen is not None and self.chosen.encode() != known.checkpoint.encode():
            raise OtherReplay(
                f"{path} was begun against checkpoint {known.checkpoint_id.hex()}, not "
                f"{self.chosen.checkpoint_id.hex()}"
            )


def _exists(path: Path) -> OutputExists:
    return OutputExists(f"{path} is there already; take it up again with --resume, or remove it")


def _differences(known: Wanted, wanted: Wanted) -> str:
    old, new = known.to_json(), wanted.to_json()
    names = sorted(one for one in old.keys() | new.keys() if old.get(one) != new.get(one))
    return ", ".join(f"{one} was {old.get(one)} and is {new.get(one)}" for one in names)
