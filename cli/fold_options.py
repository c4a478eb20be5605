"""Options of commands that fold an archived stream, and the engines that do it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.archive_options import StoreOptions
from cli.console import notice, progress
from cli.options import ClientOption, ProfileOptions, StreamOption
from cli.passphrase import PassphraseFileOption, passphrase_of
from cli.submit import ConfOption, Submission, submit
from recorder.archive.store import HubArchive
from recorder.folds.cache import FoldKeys, drop
from recorder.folds.job import FoldJob, FoldResult, carry_out
from recorder.folds.reader import FoldReader
from recorder.folds.wanted import Wanted
from spark_jobs.store_door import door_of
from veen.keystore.directory import ClientDir
from veen.keystore.secrets import Secrets
from veen.limits import Limits
from veen.objects.settings import credentials_in
from veen.objects.store import open_retention
from veen.overlay.tree import BLOCK

LOCAL_MASTER: Final = "local[*]"


class Engine(Enum):
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldOptions:
    """Which stream, who reads it, and who does the work."""

    stream: StreamOption
    client: ClientOption
    passphrase_file: PassphraseFileOption = None
    epoch: Annotated[
        int, typer.Option("--epoch", min=0, metavar="N", help="Of a stream with epochs.")
    ] = 0
    block: Annotated[
        int, typer.Option("--block", min=1, metavar="N", help="Events in a leaf of the tree.")
    ] = BLOCK
    summaries: Annotated[
        bool,
        typer.Option("--summaries", help="Use and keep summaries, in the clear, in the store."),
    ] = False
    engine: Annotated[
        Engine, typer.Option("--engine", help="In this process, or submitted to Spark.")
    ] = Engine.LOCAL
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Of Spark, such as spark://host:7077.")
    ] = LOCAL_MASTER
    conf: ConfOption = None

    @property
    def directory(self) -> ClientDir:
        return ClientDir(self.client.absolute())

    def passphrase(self) -> bytes | None:
        return passphrase_of(self.directory, self.passphrase_file)

    def archive(self, at: StoreOptions) -> HubArchive:
        """To be read alone, unless it is here that summaries are kept."""
        return at.archive(to_write=self.summaries and self.engine is Engine.LOCAL)

    def reader(self, profile: ProfileOptions) -> FoldReader:
        """The keys are only read: a client that sends meanwhile is not in the way."""
        secrets = Secrets.decode(self.directory.sealed().open(self.passphrase()))
        return FoldReader(secrets.readers(), profile.profile(), Limits())

    def wanted(self, overlay: str, profile: ProfileOptions) -> Wanted:
        return Wanted(
            stream=self.stream,
            overlay=overlay,
            profile=profile.profile(),
            epoch=self.epoch,
            block=self.block,
            keeps_summaries=self.summaries,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """All that it takes to fold: the store, the options and the archive that they name."""

    at: StoreOptions
    options: FoldOptions
    profile: ProfileOptions
    archive: HubArchive

    def fold(self, job: FoldJob) -> FoldResult:
        if self.options.engine is Engine.SPARK:
            return FoldResult.decode(self._on_spark(job))
        return self._here(job)

    def submission(self, job: str, *arguments: object) -> Submission:
        """A job of Spark, told what this command was told."""
        at, options = self.at, self.options
        named = {
            "store": at.store, "hub-id": self.archive.keys.hub_id.hex(), "endpoint": at.endpoint,
            "region": at.region, "addressing": at.addressing,
            "stream": options.stream, "epoch": options.epoch, "block": options.block,
            "epoch-sec": self.profile.epoch_sec, "pad-block": self.profile.pad_block,
            "client": options.client.absolute(), "passphrase-file": _absolute(options),
        }  # fmt: skip
        words = [word for key, value in named.items() if value is not None
                 for word in (f"--{key}", str(value))]  # fmt: skip
        flags = [f"--{flag}" for flag, is_given in (
            ("summaries", options.summaries),
            ("accept-overwriting-store", at.accept_overwriting_store),
        ) if is_given]  # fmt: skip
        said = (*words, *flags, *map(str, arguments))
        return Submission(job, options.master, said, conf=tuple(options.conf or ()))

    def drop_summaries(self, label: bytes) -> None:
        """Delete what folds of the label have kept."""
        given = {
            "endpoint": self.at.endpoint,
            "region": self.at.region,
            "addressing": self.at.addressing,
        }
        settings = door_of(self.at.store, given).settings
        retention = open_retention(settings, credentials_in(os.environ))
        count = drop(self.archive.objects, retention, FoldKeys(self.archive.keys.hub_id, label))
        notice(f"deleted {count} objects that folds of this label had kept")

    def _here(self, job: FoldJob) -> FoldResult:
        with progress("fold", "events") as report:
            source = job.source(
                self.archive,
                self.options.reader(self.profile),
                lambda done: report(done, job.run.size),
            )
            result = carry_out(job, source)
        work = source.work
        notice(f"read {work.events} events and {work.summaries} summaries, kept {work.kept}")
        return result

    def _on_spark(self, job: FoldJob) -> bytes:
        run = ("--from", job.run.from_seq, "--to", job.run.to_seq)
        told = self.submission("fold_overlay", "--overlay", job.overlay, *run)
        return submit(told, self.options.passphrase())


def _absolute(options: FoldOptions) -> Path | None:
    return options.passphrase_file.absolute() if options.passphrase_file else None
