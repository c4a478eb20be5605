"""Whether people have let an import in: Airflow's record, and the trace that each approval left.

An answer counts if Airflow's human-in-the-loop record has it for the very try of the task, if the
task itself ran to its end and noted the same answer, and if the text that was shown is the text of
this run. A task that was set to success by hand has neither record nor trace, and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from veen_answers import Asked
from veen_question import Question
from veen_run_files import read_run_file, remove_run_file, write_run_file

APPROVE: Final = "Approve"
REJECT: Final = "Reject"
_SUCCESS: Final = "success"
Context = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trace:
    """What an approval task noted when it came to its end by an answer."""

    ti_id: str
    person_id: str
    person: str
    decision: str


@dataclass(frozen=True, slots=True)
class Decision:
    """``refused`` says why nothing goes in; else ``people`` have approved, or one has rejected."""

    people: tuple[str, ...] = ()
    is_rejected: bool = False
    refused: str = ""

    @property
    def said(self) -> list[str]:
        if self.refused:
            return []
        return [f"{one}: {REJECT if self.is_rejected else APPROVE}" for one in self.people]


def task_of(number: int) -> str:
    return f"approve_{number}"


def note_trace(context: Context, number: int, trace: Trace) -> None:
    write_run_file(context, f"trace-{number}", asdict(trace))


def forget_trace(context: Context, number: int) -> None:
    """When the question is put anew: an earlier answer does not count."""
    remove_run_file(context, f"trace-{number}")


def traces(context: Context, before: int) -> list[Trace | None]:
    """Of the approvals number 1 to ``before`` - 1."""
    found = (read_run_file(context, f"trace-{one}") for one in range(1, before))
    return [Trace(**one) if one else None for one in found]


def decide(
    question: Question,
    recorded: Mapping[str, Asked],
    noted: Sequence[Trace | None],
    allowed: Sequence[str],
) -> Decision:
    """``noted`` has a place for each person that is needed; ``allowed`` is empty if all may."""
    people: dict[str, str] = {}
    for number, trace in enumerate(noted, 1):
        task, found = task_of(number), recorded.get(task_of(number))
        wrong = _doubt(task, found, trace, question, allowed)
        if wrong or trace is None:
            return Decision(refused=wrong)
        if trace.decision == REJECT:
            return Decision(people=(trace.person,), is_rejected=True)
        if trace.person_id in people:
            return Decision(
                refused=f"{trace.person} answered twice; {len(noted)} different people are needed"
            )
        people[trace.person_id] = trace.person
    return Decision(people=tuple(people.values()))


def _doubt(
    task: str,
    found: Asked | None,
    trace: Trace | None,
    question: Question,
    allowed: Sequence[str],
) -> str:
    """Why an answer does not count; empty if it does."""
    if found is None or found.person_id is None:
        state = found.state if found else None
        how = "its state was set by hand" if state == _SUCCESS else f"its state is {state}"
        return f"Airflow has no answer of a person to task {task}; {how}"
    if trace is None or found.state != _SUCCESS or trace.ti_id != found.ti_id:
        return f"task {task} did not end by its answer; its state was set by hand"
    said = (found.person_id, found.decision)
    if said != (trace.person_id, trace.decision) or found.decision not in (APPROVE, REJECT):
        return f"Airflow's record of task {task} says {said}, its own note {trace}"
    if found.body != question.body:
        return f"task {task} showed another text than this run asks about"
    if allowed and found.person_id not in allowed:
        return f"{found.person} answered task {task} and is not among the people that may"
    return ""
