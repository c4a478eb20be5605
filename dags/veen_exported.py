"""An export: the words of its commands, from what a run was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veen_words import bridge_export, bridge_verify
from veen_zone import workplace, zone

Context = Mapping[str, Any]


def export_words(context: Context) -> Sequence[str]:
    """The medium that stands for a directory may not be there yet; a mounted one is."""
    asked = dict(context["params"])
    Path(asked["medium"]).mkdir(parents=True, exist_ok=True)
    return bridge_export(zone(), asked, f"airflow:{context['run_id']}")


def check_words(context: Context) -> Sequence[str]:
    """Every byte as it was written; who signed it is for the other zone to tell."""
    transcript = workplace(zone(), context) / "transcript.txt"
    return bridge_verify([str(context["params"]["medium"])], ["--level", "intact"], transcript)
