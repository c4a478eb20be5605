"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.objects.fixtures import (
    heads,
    moto,
    objects,
    quick_folder,
    retention,
    settings,
    start_rclone,
    store,
)

__all__ = [
    "heads",
    "moto",
    "objects",
    "quick_folder",
    "retention",
    "settings",
    "start_rclone",
    "store",
]
