"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.spark.fixtures import (
    environment,
    golden_hub,
    golden_sealed,
    in_files,
    master,
    moto,
    overwriting,
    sealed_hub,
    sealed_in,
    settings_for,
    spark,
    submit,
    terms,
)

__all__ = [
    "environment",
    "golden_hub",
    "golden_sealed",
    "in_files",
    "master",
    "moto",
    "overwriting",
    "sealed_hub",
    "sealed_in",
    "settings_for",
    "spark",
    "submit",
    "terms",
]
