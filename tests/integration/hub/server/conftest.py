"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.hub.server_fixtures import (
    make_hub,
    make_shared_hub,
    open_hub,
    refusal,
    refused,
    shared_hub,
    stream,
    veen,
    wait_until,
)

__all__ = [
    "make_hub",
    "make_shared_hub",
    "open_hub",
    "refusal",
    "refused",
    "shared_hub",
    "stream",
    "veen",
    "wait_until",
]
