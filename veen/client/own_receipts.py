"""receipts.cborseq of a client: the receipts of what it sent, made again where they were lost.

The sender appends to it and does not sync: a resync learns from the log what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from veen import durable
from veen.client import cbor_sequence
from veen.errors import Malformed
from veen.receipt import Receipt

FILE: Final = "receipts.cborseq"


class Rebuild:
    """Receipts learnt from a log, which take the place of some that are held."""

    def __init__(self, spool: BinaryIO) -> None:
        self._spool = spool
        self.count = 0

    def add(self, receipt: Receipt) -> None:
        self._spool.write(receipt.encode())
        self.count += 1


@contextmanager
def rebuilding(root: Path, keeps: Callable[[Receipt], bool]) -> Iterator[Rebuild]:
    """What is added in the block stands in the file after it, if the block ends well.

    Of what stood there before, stays what ``keeps`` says.
    """
    path, new = root / FILE, root / f".{FILE}.new"
    new.unlink(missing_ok=True)
    try:
        with new.open("xb") as file:
            new.chmod(durable.FILE_MODE)
            rebuild = Rebuild(file)
            yield rebuild
            if rebuild.count:
                _copy(path, file, keeps)
                file.flush()
                durable.sync(file.fileno())
        if rebuild.count:
            durable.rename(new, path)
    finally:
        new.unlink(missing_ok=True)


def _copy(path: Path, into: BinaryIO, keeps: Callable[[Receipt], bool]) -> None:
    """Up to a torn end."""
    with suppress(Malformed):
        for _, receipt in cbor_sequence.items(path, Receipt):
            if keeps(receipt):
                into.write(receipt.encode())
