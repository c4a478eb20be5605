"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.hub.server_fixtures import make_hub, open_hub, refusal, refused, veen, wait_until

__all__ = ["make_hub", "open_hub", "refusal", "refused", "veen", "wait_until"]
