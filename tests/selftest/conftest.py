"""Self-tests run by the real program, whole or broken on purpose."""

from __future__ import annotations
