"""One chunk to turn into events, as it travels to an executor, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from spark_jobs.chunk_window import ArchivedChunk
from spark_jobs.event_file import EventWriter
from spark_jobs.event_manifest import EventChunk
from spark_jobs.event_rows import Readership, Stream
from spark_jobs.signer import identity_in
from spark_jobs.store_door import StoreDoor
from veen.errors import Malformed, Untrusted
from veen.objects.port import ObjectMissing


@dataclass(frozen=True, slots=True)
class Reader:
    """Where the identity lies on every host; its keys never travel."""

    client: Path
    passphrase_file: Path | None

    def keys(self) -> tuple[bytes, ...]:
        return identity_in(self.client, self.passphrase_file).readers()

    def name(self) -> bytes:
        return identity_in(self.client, self.passphrase_file).card.id_sign


class Work(NamedTuple):
    chunk: ArchivedChunk
    stream: Stream


class Done(NamedTuple):
    """What became of a chunk: its events, or why it was refused."""

    chunk: ArchivedChunk
    events: EventChunk | None
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What every task is given; ``readership`` has no keys until it gets to its host."""

    door: StoreDoor
    prefix: str
    readership: Readership
    reader: Reader


def write_one(terms: Terms, work: Work) -> Done:
    """The events of one chunk in the store; doing it twice puts the same bytes."""
    readership = replace(terms.readership, keys=terms.reader.keys())
    writer = EventWriter(terms.door.to_put().objects, terms.prefix, readership)
    try:
        return Done(work.chunk, writer.write(work.chunk, work.stream))
    except (Untrusted, Malformed, ObjectMissing) as error:
        return Done(work.chunk, None, str(error))
