"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.client.fixtures import (
    gated_hub,
    make_hub,
    make_shared_hub,
    open_client,
    open_hub,
    stream,
)

__all__ = ["gated_hub", "make_hub", "make_shared_hub", "open_client", "open_hub", "stream"]
