"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.bridge.importer_fixtures import z2_hub, zone, zygote

__all__ = ["z2_hub", "zone", "zygote"]
