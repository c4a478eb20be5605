"""The files of a result, as the Query API takes them from a job: all of them, or none.

``rows.jsonl`` is canonical JSON, a row a line, in order. ``witnesses.cborseq`` holds a witness for
each verified event. ``digest-parts.json`` holds what the digest is made of.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from recorder.query.descriptor import Descriptor
from recorder.query.digest import RowChain, RowsHash, Searched
from recorder.query.evidence import Verified, evidence_hash
from spark_jobs.query_witness import Proven
from veen import canonical_json, durable
from veen.digest import h_blocks

ROWS, WITNESSES, PARTS = "rows.jsonl", "witnesses.cborseq", "digest-parts.json"


class ResultDraft:
    """A result beside its place; it is there once it is whole, on disk and released."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._draft = out.with_name(f".{out.name}.new")
        self.abandon()
        durable.make_directory(self._draft)

    def write_rows(self, rows: Iterable[bytes]) -> RowsHash:
        """Rows in canonical JSON, in their order."""
        chain = RowChain()
        with (self._draft / ROWS).open("wb") as file:
            hashed = h_blocks(chain.blocks(_through(file, rows)))
            _settle(file)
        return RowsHash(hashed.hex(), chain.count, chain.value.hex())

    def write_witnesses(
        self, descriptor: Descriptor, result_id: str, proven: Iterable[Proven]
    ) -> str:
        """The evidence_hash over events that were verified."""
        with (self._draft / WITNESSES).open("wb") as file:
            found = evidence_hash(descriptor, result_id, _lines(file, proven))
            _settle(file)
        return found

    def write_parts(
        self,
        rows: RowsHash,
        event_count: int,
        evidence_hash: str,
        searched: Iterable[Searched],
    ) -> None:
        parts = {
            "rows_hash": rows.rows_hash,
            "rows_chain": rows.chain,
            "row_count": rows.row_count,
            "event_count": event_count,
            "evidence_hash": evidence_hash,
            "searched": [one.document() for one in searched],
        }
        durable.write(self._draft / PARTS, canonical_json.encode(parts))
        durable.sync_directory(self._draft)

    def release(self) -> None:
        shutil.rmtree(self._out, ignore_errors=True)
        durable.rename(self._draft, self._out)

    def abandon(self) -> None:
        shutil.rmtree(self._draft, ignore_errors=True)


def _through(file: BinaryIO, rows: Iterable[bytes]) -> Iterator[bytes]:
    for row in rows:
        file.write(row + b"\n")
        yield row


def _lines(file: BinaryIO, proven: Iterable[Proven]) -> Iterator[Verified]:
    for one in proven:
        file.write(one.witness)
        yield one.line


def _settle(file: BinaryIO) -> None:
    file.flush()
    durable.sync(file.fileno())
