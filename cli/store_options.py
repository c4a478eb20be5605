"""Options for a store, for private keys, for folds, and for submitting a job to Spark."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

import spark_jobs
from cli.console import notice, progress
from cli.errors import INTEGRITY, OK, REFUSED
from cli.extras import require
from cli.options import (
    VARIABLE,
    ClientOption,
    HubIdOption,
    PassphraseFileOption,
    ProfileOptions,
    StreamOption,
    key_in_hex,
    passphrase_of,
)
from recorder.archive.escrow import (
    Escrow,
    EscrowSealer,
    NoKeys,
    Seeds,
    read_seeds,
    refuse_without_current,
)
from recorder.archive.manifest import ArchiveManifest
from recorder.archive.store import HubArchive, hubs
from recorder.folds.cache import FoldKeys, drop
from recorder.folds.job import FoldJob, FoldRequest, FoldResult, carry_out
from recorder.folds.source import FoldReader
from veen.errors import Refused, Untrusted
from veen.keystore.card import read_card
from veen.keystore.directory import ClientDir
from veen.keystore.directory import ClientDirLock as ClientLock
from veen.keystore.sealed import Secrets
from veen.limits import Limits
from veen.objects.port import (
    Retention,
    Store,
    StoreCredentials,
    StoreLocation,
    StoreStatus,
    credentials_in,
)
from veen.objects.store import look_at, open_retention, open_store, open_to_read
from veen.overlay.fold import BLOCK
from veen.system import spark_submit
from veen.system.spark_submit import SparkSubmit

_OF_TARGET: Final = "VEEN_TO_"
EscrowOption = Annotated[
    Path | None,
    typer.Option("--escrow", metavar="CARD", help="Seal the hub's keys to this identity card."),
]
_MAX_LINES: Final = 5
_CHATTER: Final = re.compile(r" (INFO|WARN) ")
_SETTING: Final = re.compile(r"spark\.[^=\s]+=.*")
LOCAL_MASTER: Final = "local[*]"


EndpointOption = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="URL", help="Endpoint of an S3-compatible store."),
]
RegionOption = Annotated[
    str, typer.Option("--region", metavar="NAME", help="Region of the bucket.")
]
AddressingOption = Annotated[
    str,
    typer.Option("--addressing", metavar="HOW", help="Addressing style: auto, path or virtual."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """A store, and a hub in it."""

    store: Annotated[
        str, typer.Option("--store", metavar="URL", help="file:///path or s3://bucket/prefix.")
    ]
    hub_id: HubIdOption = None
    endpoint: EndpointOption = None
    region: RegionOption = "us-east-1"
    addressing: AddressingOption = "auto"
    accept_overwriting_store: Annotated[
        bool,
        typer.Option(
            "--accept-overwriting-store", help="Accept a store without conditional writes."
        ),
    ] = False

    @property
    def location(self) -> StoreLocation:
        return StoreLocation(
            url=self.store,
            endpoint=self.endpoint,
            region=self.region,
            addressing=self.addressing,
            accept_overwriting_store=self.accept_overwriting_store,
        )

    def open(self) -> Store:
        return open_store(self.location.settings(), store_credentials())

    def to_read(self) -> Store:
        return open_to_read(self.location.settings(), store_credentials())

    def looked_at(self) -> StoreStatus:
        return look_at(self.location.settings(), store_credentials())

    def retention(self) -> Retention:
        """The store with the right to delete, for the command that deletes."""
        return open_retention(self.location.settings(), store_credentials())

    def requested(self) -> bytes:
        return key_in_hex("--hub-id", self.hub_id or "")

    def archive(self, *, to_write: bool = False) -> HubArchive:
        """The given hub, or the only one in the store."""
        store = self.open() if to_write else self.to_read()
        if self.hub_id is not None:
            return HubArchive(store, self.requested())
        hub_ids = list(hubs(store))
        if len(hub_ids) != 1:
            names = ", ".join(item.hex() for item in hub_ids) or "none"
            raise typer.BadParameter(f"give the hub with --hub-id; {self.store} holds: {names}")
        return HubArchive(store, hub_ids[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """A second store; its options default to those of the first."""

    to_store: Annotated[
        str, typer.Option("--to-store", metavar="URL", help="Target store, like --store.")
    ]
    to_endpoint: Annotated[
        str | None, typer.Option("--to-endpoint", metavar="URL", help="S3 endpoint of the target.")
    ] = None
    to_region: Annotated[
        str | None,
        typer.Option(
            "--to-region", metavar="NAME", help="Region of the target; default: --region."
        ),
    ] = None
    to_addressing: Annotated[
        str | None,
        typer.Option(
            "--to-addressing",
            metavar="HOW",
            help="Addressing of the target; default: --addressing.",
        ),
    ] = None

    def open(self, source: StoreOptions) -> Store:
        location = StoreLocation(
            url=self.to_store,
            endpoint=self.to_endpoint,
            region=self.to_region or source.region,
            addressing=self.to_addressing or source.addressing,
            accept_overwriting_store=source.accept_overwriting_store,
        )
        return open_store(location.settings(), store_credentials(_OF_TARGET) or store_credentials())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysOptions:
    """The private keys of a hub: from the escrow of its archive, or from a directory."""

    client: Annotated[
        Path | None,
        typer.Option("--client", metavar="DIR", help="Identity that the escrow is sealed to."),
    ] = None
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="DIR", help="A copy of the hub's keys/.")
    ] = None
    passphrase_file: PassphraseFileOption = None

    @property
    def is_given(self) -> bool:
        return self.client is not None or self.keys is not None

    def seeds(self, archive: HubArchive) -> Callable[[ArchiveManifest], Seeds]:
        """A function that loads the keys for a manifest."""
        if self.client is not None and self.keys is not None:
            raise typer.BadParameter("--client and --keys exclude each other")
        if self.keys is not None:
            folder = self.keys
            return lambda manifest: read_seeds(folder, archive.identity(manifest))
        if self.client is not None:
            readers = self._readers(ClientDir(self.client.absolute()))
            return lambda manifest: _from_escrow(archive, manifest, readers)
        return lambda _manifest: {}

    def _readers(self, directory: ClientDir) -> tuple[bytes, ...]:
        passphrase = passphrase_of(directory, self.passphrase_file)
        with ClientLock(directory):
            return directory.open(passphrase).readers()


def sealer_to(card: Path | None) -> EscrowSealer | None:
    if card is None:
        return None
    recipient = read_card(card).recipient(int(time.time()))
    return EscrowSealer(recipient, os.urandom(32))


def _from_escrow(
    archive: HubArchive, manifest: ArchiveManifest, readers: tuple[bytes, ...]
) -> Seeds:
    if manifest.escrow is None:
        raise NoKeys("the archive has no escrow: give the keys with --keys")
    document = archive.document(manifest.escrow, Escrow)
    if document.hub_id != manifest.hub_id:
        raise Refused("the escrow belongs to another hub")
    seeds = document.open(readers)
    refuse_without_current(archive.identity(manifest), seeds, "the escrow")
    return seeds


def store_credentials(prefix: str = "") -> StoreCredentials | None:
    """Credentials from the environment; an incomplete pair is refused."""
    pair = [f"{prefix}AWS_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")]
    if prefix and len([name for name in pair if os.environ.get(name)]) == 1:
        raise Refused(f"expected both {pair[0]} and {pair[1]}, got one of them; set the other")
    return credentials_in(os.environ, prefix)


def _setting(given: str) -> str:
    if not _SETTING.fullmatch(given):
        raise typer.BadParameter(f"{given!r}: expected spark.NAME=VALUE")
    return given


ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        parser=_setting,
        help="Spark setting, not a secret; repeatable.",
    ),
]


@dataclass(frozen=True, slots=True)
class Submission:
    """A file of ``spark_jobs``, the master to run it on, and its arguments.

    ``out`` is the option that names the file it writes, ``conf`` are settings of Spark.
    """

    job: str
    master: str
    arguments: tuple[str, ...]
    out: str = "--out"
    conf: tuple[str, ...] = ()


def submit(
    submission: Submission, passphrase: bytes | None, *, accept: tuple[int, ...] = (OK,)
) -> bytes:
    """Run the job, and return the file it wrote; its exit code must be accepted."""
    if spark_submit.program() is None:
        require(f"the job {submission.job}", "spark")
    spark = SparkSubmit(
        submission.master, dict(setting.split("=", 1) for setting in submission.conf)
    )
    secret = {} if passphrase is None else {VARIABLE: os.fsdecode(passphrase)}
    with tempfile.TemporaryDirectory(prefix="veen-spark-") as folder:
        out = Path(folder) / "result"
        arguments = (*submission.arguments, submission.out, str(out))
        done = subprocess.run(  # noqa: S603 - our own program with our own arguments
            spark.command(_job_file(submission.job), arguments),
            env=spark.environment(os.environ) | secret,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        said = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        if done.returncode not in accept or not out.exists():
            _raise_job_error(submission.job, done.returncode, said)
        return out.read_bytes()


def _job_file(job: str) -> Path:
    (folder,) = spark_jobs.__path__
    return Path(folder) / f"{job}.py"


def _raise_job_error(job: str, code: int, output: list[str]) -> None:
    own = [line.removeprefix(f"{job}: ") for line in output if line.startswith(f"{job}: ")]
    if own and code == INTEGRITY:
        raise Untrusted(own[-1])
    if own and code == REFUSED:
        raise Refused(own[-1])
    lines = [line for line in output if line and not _CHATTER.search(line)]
    last = " | ".join(lines[-_MAX_LINES:])
    raise Refused(f"the Spark job {job} exited with {code}: {last or 'no output'}")


class FoldEngine(Enum):
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldOptions:
    """The stream, its reader, and the engine."""

    stream: StreamOption
    client: ClientOption
    passphrase_file: PassphraseFileOption = None
    epoch: Annotated[
        int, typer.Option("--epoch", min=0, metavar="N", help="Epoch, for a stream with epochs.")
    ] = 0
    block: Annotated[
        int, typer.Option("--block", min=1, metavar="N", help="Events per leaf of the tree.")
    ] = BLOCK
    summaries: Annotated[
        bool,
        typer.Option("--summaries", help="Use and store summaries, unencrypted."),
    ] = False
    engine: Annotated[
        FoldEngine, typer.Option("--engine", help="Run in this process, or as a Spark job.")
    ] = FoldEngine.LOCAL
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark master, like spark://host:7077.")
    ] = LOCAL_MASTER
    conf: ConfOption = None

    @property
    def directory(self) -> ClientDir:
        return ClientDir(self.client.absolute())

    def passphrase(self) -> bytes | None:
        return passphrase_of(self.directory, self.passphrase_file)

    def archive(self, at: StoreOptions) -> HubArchive:
        """The archive, read-only unless this process stores summaries in it."""
        return at.archive(to_write=self.summaries and self.engine is FoldEngine.LOCAL)

    def reader(self, profile: ProfileOptions) -> FoldReader:
        """The reader's keys, read without a lock."""
        secrets = Secrets.decode(self.directory.sealed().open(self.passphrase()))
        return FoldReader(secrets.readers(), profile.profile(), Limits())

    def requested(self, overlay: str, profile: ProfileOptions) -> FoldRequest:
        return FoldRequest(
            stream=self.stream,
            overlay=overlay,
            profile=profile.profile(),
            epoch=self.epoch,
            block=self.block,
            keeps_summaries=self.summaries,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The store, the options and the archive of a fold."""

    at: StoreOptions
    options: FoldOptions
    profile: ProfileOptions
    archive: HubArchive

    def fold(self, job: FoldJob) -> FoldResult:
        if self.options.engine is FoldEngine.SPARK:
            return FoldResult.decode(self._on_spark(job))
        return self._here(job)

    def submission(self, job: str, *arguments: object) -> Submission:
        """The Spark job with the options of this command."""
        at, options = self.at, self.options
        named = {
            "hub-id": self.archive.keys.hub_id.hex(),
            "stream": options.stream, "epoch": options.epoch, "block": options.block,
            "epoch-sec": self.profile.epoch_sec, "pad-block": self.profile.pad_block,
            "client": options.client.absolute(), "passphrase-file": _absolute(options),
        }  # fmt: skip
        argv = [word for key, value in named.items() if value is not None
                 for word in (f"--{key}", str(value))]  # fmt: skip
        flags = ["--summaries"] if options.summaries else []
        given = (*at.location.arguments(), *argv, *flags, *map(str, arguments))
        return Submission(job, options.master, given, conf=tuple(options.conf or ()))

    def drop_summaries(self, label: bytes) -> None:
        """Delete the stored summaries of the label."""
        retention = self.at.retention()
        count = drop(self.archive.objects, retention, FoldKeys(self.archive.keys.hub_id, label))
        notice(f"deleted {count} stored summaries of this label")

    def _here(self, job: FoldJob) -> FoldResult:
        with progress("fold", "events") as report:
            source = job.source(
                self.archive,
                self.options.reader(self.profile),
                lambda done: report(done, job.run.size),
            )
            fold_result = carry_out(job, source)
        work = source.work
        notice(f"read {work.events} events and {work.summaries} summaries, stored {work.stored}")
        return fold_result

    def _on_spark(self, job: FoldJob) -> bytes:
        run = ("--from", job.run.from_seq, "--to", job.run.to_seq)
        submission = self.submission("fold_overlay", "--overlay", job.overlay, *run)
        return submit(submission, self.options.passphrase())


def _absolute(options: FoldOptions) -> Path | None:
    return options.passphrase_file.absolute() if options.passphrase_file else None
