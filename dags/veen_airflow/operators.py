"""The operators of the DAGs: a ``veen`` command, a Spark job, and a check of what they left.

A failed step names the section of the runbook that says what to do.
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
from veen.system.child_process import end_with_parent
from veen.system.spark_submit import DEFAULT_CONF, SparkSubmit
from veen_airflow.alerts import Alarm, end_alarms, store_alarm
from veen_airflow.artefacts import (
    DagArtefact,
    DagRefusal,
    NothingToDo,
    artefact_state,
    write_artefact,
)
from veen_airflow.commands import (
    INTEGRITY,
    OK,
    RUNBOOK,
    Command,
    CommandAnswer,
    CommandFailed,
    environment,
)
from veen_airflow.zone import zone

_CODE: Final = re.compile(r"Error code is: (\d+)")
_WRONGLY_CALLED: Final = 2


@contextmanager
def translate_errors(context: Mapping[str, Any], section: str) -> Iterator[None]:
    """Translate errors of a step to Airflow's: skip if there is nothing to do, store an alarm and
    fail without retries, or fail with a section of the runbook.
    """
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
        # A bug: its traceback is preserved, and the message still names the runbook.
        raise AirflowException(failure_text(f"{type(error).__name__}: {error}", section)) from error


def failure_text(what: str, section: str) -> str:
    return f'{what.rstrip(". ")}. What to do: {RUNBOOK}, section "{section}"'


def evidence(context: Mapping[str, Any], what: str) -> Alarm:
    """An alarm that something signed does not verify, according to a command or job."""
    return Alarm(f"{context['ti'].task_id}-evidence", what)


@contextmanager
def _alarmed(context: Mapping[str, Any], section: str) -> Iterator[None]:
    """Store alarms raised within; an error while storing is translated as well."""
    try:
        yield
    except Alarm as alarm:
        store_alarm(zone(), alarm, context, section)
        raise AirflowFailException(failure_text(str(alarm), section)) from None
    except CommandFailed as failed:
        if failed.is_evidence:
            store_alarm(zone(), evidence(context, str(failed)), context, section)
        raise


Context = Mapping[str, Any]
Argv = Sequence[str] | Sequence[Sequence[str]]


class ArtefactLink(BaseOperatorLink):
    """A link from a task to its artefact: a checkpoint, a bundle, a receipt, a report."""

    name = "What it made"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's own
        return getattr(operator, "link", "") or ""


class StepOperator(BaseOperator):
    """A step that may raise alarms, which are resolved once it succeeds."""

    operator_extra_links = (ArtefactLink(),)

    def __init__(self, *, runbook: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._runbook = runbook
        self.link = ""

    def execute(self, context: Any) -> dict[str, Any]:
        with translate_errors(context, self._runbook):
            done = self._step(context)
            end_alarms(zone(), context)
            return done

    @abstractmethod
    def _step(self, context: Any) -> dict[str, Any]: ...

    def _keep(self, artefacts: Sequence[DagArtefact], context: Any) -> dict[str, Any]:
        config = zone()
        done = [
            artefact
            for artefact in artefacts
            if artefact.final
            and artefact_state(config, artefact.kind, artefact.id) == artefact.final
        ]
        for artefact in artefacts:
            # An artefact in its final state does not return to an earlier state.
            if artefact not in done or (artefact.is_news and artefact.state == artefact.final):
                write_artefact(config, artefact, context)
        if artefacts:
            self.link = artefacts[-1].link
        if artefacts and all(artefact in done and not artefact.is_news for artefact in artefacts):
            raise NothingToDo(
                f"nothing is new: {artefacts[-1].kind} {artefacts[-1].id} is stored already"
            )
        return {"made": [{"id": artefact.id, "state": artefact.state} for artefact in artefacts]}


class VeenOperator(StepOperator):
    """Runs a ``veen`` command, or several in order, and stores their artefacts.

    ``argv`` may be a function that is called when the task runs. ``runbook`` is the section that a
    failure names. ``accept`` are exit codes that are no failure, ``refusals`` codes of refusals
    that are none, ``nothing_codes`` exit codes that skip the following tasks. ``artefacts``
    derives artefacts from an answer.
    """

    def __init__(
        self,
        *,
        argv: Argv | Callable[[Context], Argv],
        artefacts: Callable[[CommandAnswer, Context], Sequence[DagArtefact]] | None = None,
        accept: Collection[int] = (OK,),
        refusals: Collection[str] = (),
        nothing_codes: Collection[int] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._argv = argv
        self._artefacts = artefacts
        self._accept = (*accept, *nothing_codes)
        self._refusals = tuple(refusals)
        self._nothing_codes = tuple(nothing_codes)
        self._command: Command | None = None

    def on_kill(self) -> None:
        if self._command is not None:
            self._command.end()

    def _step(self, context: Any) -> dict[str, Any]:
        artefacts: list[DagArtefact] = []
        answers = [self._answer(argv) for argv in self._commands(context)]
        for answer in answers:
            artefacts += self._artefacts(answer, context) if self._artefacts else ()
        stored, codes = self._keep(artefacts, context), [answer.code for answer in answers]
        # On a retry, a killed first try may have done everything.
        if set(codes) <= set(self._nothing_codes) and context["ti"].try_number <= 1:
            raise NothingToDo("there was nothing to do")
        return {"codes": codes, **stored}

    def _commands(self, context: Any) -> list[Sequence[str]]:
        argv: Any = self._argv(context) if callable(self._argv) else self._argv
        return [argv] if argv and isinstance(argv[0], str) else list(argv)

    def _answer(self, argv: Sequence[str]) -> CommandAnswer:
        self._command = Command(argv, environment=environment())
        return self._command.answer(self._runbook, self._accept, self._refusals)


class JudgeOperator(StepOperator):
    """Checks the results of previous tasks, and fails if something is wrong."""

    def __init__(self, *, judge: Callable[[Context], Sequence[DagArtefact]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._judge = judge

    def _step(self, context: Any) -> dict[str, Any]:
        return self._keep(self._judge(context), context)


class SparkOperator(SparkSubmitOperator):
    """Submits a file of ``spark_jobs`` with the zone's Spark settings.

    ``arguments`` is called when the task runs. ``artefact`` is called with "done" or "failed". Exit
    code 3 means that something signed does not verify, which is an alarm. ``accept`` are exit codes
    that another task checks. Spark's process ends with the task, even if that is killed.
    """

    operator_extra_links = (ArtefactLink(),)

    def __init__(
        self,
        *,
        job: str,
        runbook: str,
        arguments: Callable[[Context], Sequence[str]],
        artefact: Callable[[Context, str], DagArtefact] | None = None,
        accept: Collection[int] = (),
        **kwargs: Any,
    ) -> None:
        config = zone()
        super().__init__(
            application=str(job_file(job)),
            name=f"{config.name}-{job}",
            conn_id="spark_default",
            conf={**DEFAULT_CONF, **config.spark.conf},
            env_vars=spark_environment(config.spark.master),
            **kwargs,
        )
        self._runbook = runbook
        self._arguments = arguments
        self._artefact = artefact
        self._accept = tuple(accept)
        self.link = ""

    def execute(self, context: Any) -> Any:
        with translate_errors(context, self._runbook):
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
            raise evidence(context, f"{self.name}: a signature or a proof could not be verified.")
        kind = AirflowFailException if code == _WRONGLY_CALLED else AirflowException
        raise kind(failure_text(str(error), self._runbook))

    def _keep(self, context: Any, state: str) -> None:
        if self._artefact is not None:
            artefact = self._artefact(context, state)
            write_artefact(zone(), artefact, context)
            self.link = artefact.link


def job_file(job: str) -> Path:
    """The file of a job, located without importing it."""
    spec = find_spec("recorder")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]).parent / "spark_jobs" / f"{job}.py"


def spark_environment(master: str) -> dict[str, str]:
    """Environment variables with the path of spark-submit and its Python."""
    folder = str(Path(sys.executable).parent)
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"PATH": path, **SparkSubmit(master, {}).variables(os.environ)}
