"""The memory of a task that reads a chunk does not grow with the chunk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from spark_jobs.chunk_window import ArchivedChunk
from support.paths import SUPPORT
from veen.digest import h
from veen.limits import Limits
from veen.log.entry import Entry
from veen.log.layout import ChunkName
from veen.msg import Msg
from veen.objects.port import FileSettings
from veen.objects.store import open_store
from veen.receipt import Receipt

HUB_ID, LABEL = b"h" * 32, b"l" * 32
MIB = 2**20
# A window holds one entry of the largest size at least.
WINDOW = Limits().largest_entry
ENTRIES = {8: "small", 128: "large"}


def a_chunk(store: Path, entries: int) -> int:
    """A chunk of entries of half a mebibyte, as an archive has it; how large it is."""
    ciphertext = bytes(MIB // 2)
    raw = bytearray()
    for seq in range(1, entries + 1):
        msg = Msg(
            profile_id=bytes(32), label=LABEL, client_id=bytes(32), client_seq=seq, prev_ack=0,
            auth_ref=None, ct_hash=h(ciphertext), ciphertext=ciphertext,
        )  # fmt: skip
        receipt = Receipt(
            label=LABEL, stream_seq=seq, leaf_hash=msg.leaf_hash(), mmr_root=bytes(32), hub_ts=seq
        )
        raw += Entry(msg.encode(), receipt.encode()).encode(LABEL, seq)
    chunk = ArchivedChunk(HUB_ID, ChunkName(LABEL, 1, entries), len(raw))
    open_store(FileSettings(store)).objects.put(chunk.key, bytes(raw))
    return len(raw)


def most_memory(store: Path, entries: int, size: int) -> int:
    done = subprocess.run(
        [sys.executable, SUPPORT / "spark" / "window_memory.py", store, HUB_ID.hex(),
         LABEL.hex(), str(entries), str(size), str(WINDOW)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, held = map(int, done.stdout.split())
    assert rows == entries
    return held


def test_a_chunk_many_times_a_window_takes_no_more_memory(tmp_path: Path) -> None:
    held = {}
    for entries, name in ENTRIES.items():
        size = a_chunk(tmp_path / name, entries)
        assert size > 2 * WINDOW
        held[name] = most_memory(tmp_path / name, entries, size)
    # Sixteen times the chunk, 60 MiB more of it: within a few windows, and a tenth of all.
    assert held["large"] - held["small"] < 8 * WINDOW
    assert held["large"] < 1.1 * held["small"]
