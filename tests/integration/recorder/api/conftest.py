"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.recorder.api_fixtures import gated, hub, make_hub, make_zone, zone

__all__ = ["gated", "hub", "make_hub", "make_zone", "zone"]
