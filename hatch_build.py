"""Puts the DAGs and plugins into a wheel, as folders for Airflow to read.

An editable installation reads them from the checkout; a copy of them there would grow stale.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            for folder in ("dags", "plugins"):
                build_data["force_include"][folder] = f"veen/share/{folder}"
