"""Forging what a data directory holds, as whoever has its keys could."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from veen.chunk import read_entries
from veen.entry import Entry
from veen.msg import Msg
from veen.receipt import Receipt
from veen.sign import PrivateKey


@dataclass
class Framed:
    label: bytes
    seq: int
    msg: Msg
    receipt: Receipt

    def encode(self) -> bytes:
        entry = Entry(self.msg.encode(), self.receipt.encode())
        return entry.encode(self.label, self.seq)


@pytest.fixture
def forge(tools: Any) -> Callable[[Path, Callable[[list[Framed]], None]], None]:
    """Rewrite a chunk with its entries edited, each framed as if it were right."""

    def rewrite(path: Path, edit: Callable[[list[Framed]], None]) -> None:
        entries = [
            Framed(header.label, header.stream_seq, entry.msg(), entry.receipt())
            for _, header, entry in read_entries(path.read_bytes(), tools.LIMITS)
        ]
        edit(entries)
        path.write_bytes(b"".join(one.encode() for one in entries))

    return rewrite


@pytest.fixture
def hub_key(copy: Path, tools: Any) -> PrivateKey:
    return PrivateKey(tools.the(copy, "keys/*.key").read_bytes())
