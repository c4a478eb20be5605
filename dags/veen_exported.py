"""An export: the words of its commands, from what a run was asked for, and the medium it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from veen_made import Nothing, Refusal
from veen_words import bridge_export, bridge_verify
from veen_zone import workplace, zone

Context = Mapping[str, Any]
_SCHEDULED: Final = "scheduled"


def export_words(context: Context) -> Sequence[str]:
    """Without its medium a scheduled run has nothing to do, and one by hand is refused."""
    asked = dict(context["params"])
    if lack := _lack_of(Path(asked["medium"])):
        raise (Nothing if context["dag_run"].run_type == _SCHEDULED else Refusal)(lack)
    return bridge_export(zone(), asked, f"airflow:{context['run_id']}")


def check_words(context: Context) -> Sequence[str]:
    """Every byte as it was written; who signed it is for the other zone to tell."""
    transcript = workplace(zone(), context) / "transcript.txt"
    return bridge_verify([str(context["params"]["medium"])], ["--level", "intact"], transcript)


def _lack_of(medium: Path) -> str | None:
    """A folder is never made here: what stood in it would be on a disk that nobody carries."""
    if not medium.is_dir():
        return f"the medium is not there: {medium} is no directory; nothing was exported"
    if zone().dags.medium_is_mount and not medium.is_mount():
        return f"nothing is mounted at {medium}, and medium_is_mount is true; nothing was exported"
    return None
