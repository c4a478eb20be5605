"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.recorder.api_fixtures import make_hub

__all__ = ["make_hub"]
