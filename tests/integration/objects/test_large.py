"""Files pass through a store in bounded memory, however large they are."""

from __future__ import annotations

import hashlib
import random
import tracemalloc
from pathlib import Path

from veen.objects.port import ObjectStore

SIZE = 24 * 2**20
BOUND = 8 * 2**20


def test_a_file_passes_in_bounded_memory(objects: ObjectStore, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(random.Random(1).randbytes(SIZE))
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    tracemalloc.start()
    try:
        objects.put_file("chunk", source)
        objects.put_file("chunk", source)
        objects.get_file("chunk", target, expect=digest)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < BOUND
    assert objects.size("chunk") == target.stat().st_size == SIZE
