"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.client.fixtures import hubs_in, make_shared_hub, open_hub

__all__ = ["hubs_in", "make_shared_hub", "open_hub"]
