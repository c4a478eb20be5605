"""The files of vectors."""

from __future__ import annotations

import json
from typing import Any

from support.paths import VECTORS


def load_vectors(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((VECTORS / name).read_text("utf-8"))
    return document
