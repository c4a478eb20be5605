"""The fixtures that these tests share with those of other folders."""

from __future__ import annotations

from support.keystore.fixtures import chance, create

__all__ = ["chance", "create"]
