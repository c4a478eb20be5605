"""How a step fails: in plain words, with the section of the runbook that tells what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from veen_alarm import Alarm, keep_alarm
from veen_command import RUNBOOK, CommandFailed
from veen_made import Nothing, Refusal
from veen_zone import zone

from veen.errors import VeenError


@contextmanager
def in_plain_words(context: Mapping[str, Any], section: str) -> Iterator[None]:
    """Nothing to do skips, an alarm is kept and fails for good, all else says what to do."""
    try:
        with _alarmed(context, section):
            yield
    except AirflowException:
        raise
    except Nothing as nothing:
        raise AirflowSkipException(str(nothing)) from None
    except Refusal as refusal:
        raise AirflowFailException(told(str(refusal), section)) from None
    except CommandFailed as failed:
        raise (AirflowFailException if failed.is_final else AirflowException)(str(failed)) from None
    except (VeenError, OSError) as error:
        raise AirflowException(told(str(error), section)) from error
    except Exception as error:
        # A fault of ours: its traceback stays, and people read on where they always do.
        raise AirflowException(told(f"{type(error).__name__}: {error}", section)) from error


def told(what: str, section: str) -> str:
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
        raise AirflowFailException(told(str(alarm), section)) from None
    except CommandFailed as failed:
        if failed.is_evidence:
            keep_alarm(zone(), evidence(context, str(failed)), context, section)
        raise
