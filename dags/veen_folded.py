"""Folds: which streams are folded, who reads them, and the snapshots that were verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from veen_command import Answer
from veen_made import Made, Nothing
from veen_words import snapshot, store
from veen_zone import keep_once, workplace, zone

from recorder.zone import Zone

Context = Mapping[str, Any]


def snapshot_words(verb: str) -> Callable[[Context], Sequence[Sequence[str]]]:
    """Words for each stream that is folded; ``verb`` is create or verify."""

    def words(context: Context) -> Sequence[Sequence[str]]:
        of, place = zone(), workplace(zone(), context)
        reader, streams = reader_of(of), of.dags.fold.streams or recorder_streams(of)
        files = {one: place / f"{one.replace('/', '.')}.snapshot" for one in streams}
        if verb == "verify":
            files = {one: file for one, file in files.items() if file.exists()}
        if not files:
            raise Nothing("no stream has events in the archive yet")
        return [snapshot(of, verb, one, reader, file) for one, file in files.items()]

    return words


def folded(answer: Answer, context: Context) -> Sequence[Made]:
    """A snapshot that was verified, under a name that says what it is of."""
    of, found = zone(), answer.document
    stream = str(found["stream"]).replace("/", ".")
    name = f"{found['state_class']}-{stream}-{found['upto_stream_seq']}"
    kept = of.folder / "reports" / "fold" / f"{name}.snapshot"
    keep_once(kept, (workplace(of, context) / f"{stream}.snapshot").read_bytes())
    hashes = {one: found[one] for one in ("state_hash", "mmr_root", "upto_stream_seq")}
    return [Made(kind="fold", id=name, state="verified", path=str(kept), summary=hashes)]


def events_arguments(context: Context) -> Sequence[str]:
    """Only where the zone's file asks for plaintext at rest."""
    of = zone()
    if not of.dags.fold.plaintext_at_rest:
        raise Nothing(
            "the table of events is not written: [dags.fold] plaintext_at_rest is not true"
        )
    terms = ["--terms", str(workplace(of, context) / "terms.json")]
    return [*store(of), *reader_of(of), *terms, "--plaintext-at-rest", "yes"]


def reader_of(of: Zone) -> list[str]:
    """Whose keys open events: the zone's reader, else the recorder's own; they are only read."""
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    opener = load(of.file).hub.opener
    found = ["--client", str(opener.client)]
    return found if opener.passphrase_file is None else [
        *found, "--passphrase-file", str(opener.passphrase_file)
    ]  # fmt: skip


def recorder_streams(of: Zone) -> tuple[str, ...]:
    from recorder.settings import load  # noqa: PLC0415 - only a task needs it

    return tuple(one.name for one in load(of.file).streams.streams)
