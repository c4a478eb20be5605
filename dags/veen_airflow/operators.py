"""How a step fails: in plain words, with the section of the runbook that tells what to do.

The operators of these DAGs: a ``veen`` command, a Spark job, and a judge of what they left.
"""

from __future__ import annotations

import os
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.bases.operatorlink import BaseOperatorLink
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from veen.errors import VeenError
from veen_airflow.alerts import Alarm, end_alarms, keep_alarm
from veen_airflow.artefacts import DagArtefact, DagRefusal, NothingToDo, keep, known
from veen_airflow.commands import (
    INTEGRITY,
    OK,
    RUNBOOK,
    Command,
    CommandAnswer,
    CommandFailed,
    end_with_parent,
    environment,
)
from veen_airflow.zone import zone


@contextmanager
def in_plain_words(context: Mapping[str, Any], section: str) -> Iterator[None]:
    """Nothing to do skips, an alarm is kept and fails for good, all else says what to do."""
    try:
        with _alarmed(context, section):
            yield
    except AirflowException:
        raise
    except NothingToDo as nothing:
        raise AirflowSkipException(str(nothing)) from None
    except DagRefusal as refusal:
        raise AirflowFailException(failure_text(str(refusal), section)) from None
    except CommandFailed as failed:
        raise (AirflowFailException if failed.is_final else AirflowException)(str(failed)) from None
    except (VeenError, OSError) as error:
        raise AirflowException(failure_text(str(error), section)) from error
    except Exception as error:
        # A fault of ours: its traceback stays, and people read on where they always do.
        raise AirflowException(failure_text(f"{type(error).__name__}: {error}", section)) from error


def failure_text(what: str, section: str) -> str:
    return f'{what.rstrip(". ")}. What to do: {RUNBOOK}, section "{section}"'


def evidence(context: Mapping[str, Any], what: str) -> Alarm:
    """Something that was signed does not hold, as a command or a job has found."""
    return Alarm(f"{context['ti'].task_id}-evidence", what)


@contextmanager
def _alarmed(context: Mapping[str, Any], section: str) -> Iterator[None]:
    """An alarm that cannot be kept fails in plain words, too."""
    try:
        yield
    except Alarm as alarm:
        keep_alarm(zone(), alarm, context, section)
        raise AirflowFailException(failure_text(str(alarm), section)) from None
    except CommandFailed as failed:
        if failed.is_evidence:
            keep_alarm(zone(), evidence(context, str(failed)), context, section)
        raise


Context = Mapping[str, Any]
Words = Sequence[str] | Sequence[Sequence[str]]
_CODE: Final = re.compile(r"Error code is: (\d+)")
_WRONGLY_CALLED: Final = 2


class ArtefactLink(BaseOperatorLink):
    """From a task to what it has made: a checkpoint, a bundle, a receipt, a report."""

    name = "What it made"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's own
        return getattr(operator, "link", "") or ""


class StepOperator(BaseOperator):
    """A step that people may have to hear of; what it has alarmed of is over once it succeeds."""

    operator_extra_links = (ArtefactLink(),)

    def __init__(self, *, runbook: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._runbook = runbook
        self.link = ""

    def execute(self, context: Any) -> dict[str, Any]:
        with in_plain_words(context, self._runbook):
            done = self._step(context)
            end_alarms(zone(), context)
            return done

    @abstractmethod
    def _step(self, context: Any) -> dict[str, Any]: ...

    def _keep(self, made: Sequence[DagArtefact], context: Any) -> dict[str, Any]:
        of = zone()
        done = [
            artefact
            for artefact in made
            if artefact.final and known(of, artefact.kind, artefact.id) == artefact.final
        ]
        for artefact in made:
            # What came to its end before stays there, whoever goes on with it.
            if artefact not in done or (artefact.is_news and artefact.state == artefact.final):
                keep(of, artefact, context)
        if made:
            self.link = made[-1].link
        if made and all(artefact in done and not artefact.is_news for artefact in made):
            raise NothingToDo(f"nothing has moved: {made[-1].kind} {made[-1].id} is known")
        return {"made": [{"id": artefact.id, "state": artefact.state} for artefact in made]}


class VeenOperator(StepOperator):
    """Runs ``veen`` with these words, or with several sets of them in turn, and keeps what it made.

    ``words`` may be worked out when the task runs. ``runbook`` is the section that a failure names.
    ``accept`` are exit codes that are no failure, ``refusals`` the codes of refusals that are none,
    ``nothing`` exit codes that skip what follows. ``made`` tells from an answer what there is now.
    """

    def __init__(
        self,
        *,
        words: Words | Callable[[Context], Words],
        made: Callable[[CommandAnswer, Context], Sequence[DagArtefact]] | None = None,
        accept: Collection[int] = (OK,),
        refusals: Collection[str] = (),
        nothing: Collection[int] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._words = words
        self._made = made
        self._accept = (*accept, *nothing)
        self._refusals = tuple(refusals)
        self._nothing = tuple(nothing)
        self._command: Command | None = None

    def on_kill(self) -> None:
        if self._command is not None:
            self._command.end()

    def _step(self, context: Any) -> dict[str, Any]:
        made: list[DagArtefact] = []
        answers = [self._answer(words) for words in self._commands(context)]
        for answer in answers:
            made += self._made(answer, context) if self._made else ()
        stored, codes = self._keep(made, context), [answer.code for answer in answers]
        # A second try may find all done by the first, which could not say so any more.
        if set(codes) <= set(self._nothing) and context["ti"].try_number <= 1:
            raise NothingToDo("there was nothing to do")
        return {"codes": codes, **stored}

    def _commands(self, context: Any) -> list[Sequence[str]]:
        words: Any = self._words(context) if callable(self._words) else self._words
        return [words] if words and isinstance(words[0], str) else list(words)

    def _answer(self, words: Sequence[str]) -> CommandAnswer:
        self._command = Command(words, environment=environment())
        return self._command.answer(self._runbook, self._accept, self._refusals)


class JudgeOperator(StepOperator):
    """Looks at what the steps before it have left, and says whether that is well."""

    def __init__(self, *, judge: Callable[[Context], Sequence[DagArtefact]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._judge = judge

    def _step(self, context: Any) -> dict[str, Any]:
        return self._keep(self._judge(context), context)


class SparkOperator(SparkSubmitOperator):
    """Submits a file of ``spark_jobs`` with the zone's Spark settings.

    ``arguments`` are worked out when it runs. ``made`` is told whether it is "done" or "failed". A
    job that ends with 3 has found something that does not hold, which is an alarm. ``accept`` are
    exit codes of which another task judges. Spark's process ends with the task, even a killed one.
    """

    operator_extra_links = (ArtefactLink(),)

    def __init__(
        self,
        *,
        job: str,
        runbook: str,
        arguments: Callable[[Context], Sequence[str]],
        made: Callable[[Context, str], DagArtefact] | None = None,
        accept: Collection[int] = (),
        **kwargs: Any,
    ) -> None:
        of = zone()
        super().__init__(
            application=str(job_file(job)),
            name=f"{of.name}-{job}",
            conn_id="spark_default",
            conf={"spark.ui.enabled": "false", "spark.log.level": "ERROR", **of.spark.conf},
            env_vars=spark_environment(of.spark.master),
            **kwargs,
        )
        self._runbook = runbook
        self._arguments = arguments
        self._made = made
        self._accept = tuple(accept)
        self.link = ""

    def execute(self, context: Any) -> Any:
        with in_plain_words(context, self._runbook):
            self.application_args = list(self._arguments(context))
            try:
                super().execute(context)
            except AirflowException as error:
                self._judge(error, context)
                return
            self._keep(context, "done")
            end_alarms(zone(), context)

    def _get_hook(self) -> Any:
        hook = super()._get_hook()
        hook.submit = partial(hook.submit, preexec_fn=end_with_parent)  # type: ignore[method-assign]
        return hook

    def _judge(self, error: AirflowException, context: Any) -> None:
        match = _CODE.search(str(error))
        code = int(match[1]) if match else None
        if code in self._accept:
            return
        self._keep(context, "failed")
        if code == INTEGRITY:
            self.log.error("%s", error)
            raise evidence(context, f"{self.name} found that what was signed does not hold.")
        kind = AirflowFailException if code == _WRONGLY_CALLED else AirflowException
        raise kind(failure_text(str(error), self._runbook))

    def _keep(self, context: Any, state: str) -> None:
        if self._made is not None:
            made = self._made(context, state)
            keep(zone(), made, context)
            self.link = made.link


def job_file(job: str) -> Path:
    """The file of a job, found without importing it."""
    spec = find_spec("recorder")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]).parent / "spark_jobs" / f"{job}.py"


def spark_environment(master: str) -> dict[str, str]:
    """Where spark-submit is, and with which Python it works."""
    folder = str(Path(sys.executable).parent)
    result = {
        "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
    if master.startswith("local"):
        result["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return result
