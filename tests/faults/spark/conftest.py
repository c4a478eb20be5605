"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.spark.fixtures import (
    environment,
    golden_hub,
    golden_sealed,
    in_bucket,
    moto,
    sealed_in,
    settings_for,
    spark,
    terms,
)

__all__ = [
    "environment",
    "golden_hub",
    "golden_sealed",
    "in_bucket",
    "moto",
    "sealed_in",
    "settings_for",
    "spark",
    "terms",
]
