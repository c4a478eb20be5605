"""``veen audit``: the audit of a whole log, here or as a Spark job, with a signed report."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.console import manner, progress, show
from cli.failure import INTEGRITY, OK, UNPROVEN, Refused
from cli.options import ConfigOption, HubIdOption, key_in_hex
from cli.passphrase import PassphraseFileOption, passphrase_of
from cli.pinned_hub import KnownHubOptions, end_unproven, own_identity
from cli.submit import ConfOption, Submission, submit
from hub.settings import load
from hub.storage.compare import acknowledged
from hub.storage.datadir import DataDir, Lock
from recorder.archive.store import hubs
from spark_jobs.audit_terms import AuditTerms
from spark_jobs.log_files import LogInventory, in_archive, in_directory
from spark_jobs.signer import identity_with
from spark_jobs.store_door import StoreDoor, door_of
from spark_jobs.verify_log import Known, audit, here
from veen import durable
from veen.audit.context import Depth
from veen.audit.report import Report, SignedReport
from veen.audit.trust import TrustCheck
from veen.errors import Untrusted
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.sign import PrivateKey

app = typer.Typer(help="Audit a whole log, and sign what was found.", no_args_is_help=True)

_SHOWN_FAULTS: Final = 20


class Engine(Enum):
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Where the log lies: in a store, or in the directory of a stopped hub."""

    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="file:///path or s3://bucket/prefix."),
    ] = None
    hub_id: HubIdOption = None
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="Of a store like S3.")
    ] = None
    region: Annotated[
        str | None, typer.Option("--region", metavar="NAME", help="Of the bucket.")
    ] = None
    addressing: Annotated[
        str | None, typer.Option("--addressing", metavar="HOW", help="auto, path or virtual.")
    ] = None
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="The directory of a hub.")
    ] = None
    config: ConfigOption = None

    @contextmanager
    def opened(self) -> Iterator[tuple[list[str], LogInventory, AuditTerms]]:
        """Where it is in the words of the job, what there is, and by which terms."""
        settings = load(self.config)
        if (self.store is None) == (self.data_dir is None):
            raise typer.BadParameter("give --store or --data-dir")
        if self.data_dir is not None:
            with _held(DataDir(self.data_dir.resolve())) as datadir:
                reached = acknowledged(datadir.index)
                terms = AuditTerms(
                    limits=settings.limits, streams=settings.streams, acknowledged=reached
                )
                where = ["--data-dir", str(datadir.root)]
                yield where, in_directory(datadir.root, reached), terms
            return
        door = door_of(self.store or "", self._given())
        hub_id = self._hub(door)
        terms = AuditTerms(limits=settings.limits, streams=settings.streams)
        given = [part for key, value in self._given().items() for part in (f"--{key}", value)]
        where = ["--store", self.store or "", "--hub-id", hub_id.hex(), *given]
        yield where, in_archive(door, hub_id), terms

    def _given(self) -> dict[str, str]:
        found = {
            "endpoint": self.endpoint,
            "region": self.region,
            "addressing": self.addressing,
        }
        return {key: value for key, value in found.items() if value}

    def _hub(self, door: StoreDoor) -> bytes:
        """The hub that was named, or the only one there is."""
        if self.hub_id is not None:
            return key_in_hex("--hub-id", self.hub_id)
        found = list(hubs(door.to_read()))
        if len(found) != 1:
            names = ", ".join(one.hex() for one in found) or "none"
            raise typer.BadParameter(f"name the hub with --hub-id; {self.store} holds: {names}")
        return found[0]


@contextmanager
def _held(datadir: DataDir) -> Iterator[DataDir]:
    """A directory that no hub writes to meanwhile."""
    if not datadir.log.is_dir():
        raise Refused(f"{datadir.root} is not a data directory: it has no log")
    lock = Lock(datadir)
    try:
        yield datadir
    finally:
        lock.release()


@app.command()
def log(
    at: LogOptions,
    known: KnownHubOptions,
    engine: Annotated[
        Engine, typer.Option("--engine", help="In this process, or as a Spark job.")
    ] = Engine.LOCAL,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Of the Spark cluster.")
    ] = "local[*]",
    conf: ConfOption = None,
    hashes_only: Annotated[
        bool, typer.Option("--hashes-only", help="Leave out the signatures of entries.")
    ] = False,
    sign_with: Annotated[
        Path | None,
        typer.Option("--sign-with", metavar="CLIENT", help="Who signs; else a key of its own."),
    ] = None,
    passphrase_file: PassphraseFileOption = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the report here.")
    ] = None,
) -> None:
    """Check every byte of a log against what its hub signed, and sign the report.

    Exit code 3 says that something is wrong, and the first bad byte is named. Without
    --hub-identity or --known-hubs a log is judged by the identity that lies beside it, and is
    unproven (exit code 6): a key that it calls current may have retired.

    Example: veen audit log --store file:///mnt/archive --hub-identity hub.cbor --report audit.json
    """
    passphrase = _passphrase(sign_with, passphrase_file)
    with at.opened() as (where, inventory, terms):
        own = TrustCheck().read_hub(inventory.files.read)
        newest = known.newest(own.hub_id)
        if engine is Engine.SPARK:
            flags = [*where, *(["--hashes-only"] if hashes_only else []), *_signer(sign_with)]
            flags += known.words()
            job = Submission("verify_log", master, tuple(flags), "--report", tuple(conf or ()))
            found = _on_spark(job, terms, passphrase)
        else:
            depth = Depth.HASHES if hashes_only else Depth.FULL
            done = _here(inventory, terms, depth, lambda _hub_id: newest)
            found = done.signed(_key(sign_with, passphrase))
    if report is not None:
        durable.write(report, found.to_json())
    _show(found, None if newest else own)


@app.command()
def terms(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Write them here.")],
    config: ConfigOption = None,
) -> None:
    """Write what an audit must be told beside the log, for a job that is submitted by itself.

    These are the limits and streams of the hub's settings, as the option --terms of
    spark_jobs/verify_log.py and spark_jobs/events_table.py takes them.

    Example: veen audit terms --config hub.toml --out terms.json
    """
    settings = load(config)
    found = AuditTerms(limits=settings.limits, streams=settings.streams)
    durable.write(out.absolute(), found.to_json())
    show({"out": str(out), "streams": len(found.streams)})


def _here(inventory: LogInventory, terms: AuditTerms, depth: Depth, known: Known) -> Report:
    chunks = sum(len(one.segments()) for one in inventory.log().stock.labels.values())
    with progress("audit", "chunks") as report:
        done = count(1)
        watch = lambda _found: report(next(done), chunks)  # noqa: E731
        return audit(inventory, terms, depth, here(inventory.files), watch, known)


def _on_spark(job: Submission, terms: AuditTerms, passphrase: bytes | None) -> SignedReport:
    with tempfile.TemporaryDirectory(prefix="veen-audit-") as folder:
        path = Path(folder) / "terms.json"
        path.write_bytes(terms.to_json())
        told = replace(job, arguments=(*job.arguments, "--terms", str(path)))
        found = SignedReport.from_json(submit(told, passphrase, accept=(OK, INTEGRITY, UNPROVEN)))
    found.verify(found.signed_by)
    return found


def _signer(sign_with: Path | None) -> list[str]:
    return [] if sign_with is None else ["--sign-with", str(sign_with.absolute())]


def _passphrase(sign_with: Path | None, file: Path | None) -> bytes | None:
    return None if sign_with is None else passphrase_of(ClientDir(sign_with.absolute()), file)


def _key(sign_with: Path | None, passphrase: bytes | None) -> PrivateKey:
    if sign_with is None:
        return PrivateKey(os.urandom(32))
    return identity_with(sign_with.absolute(), passphrase).client


def _show(signed: SignedReport, own: HubIdentity | None) -> None:
    """``own`` is the log's identity where nobody vouches for it."""
    found = signed.report
    document = {**json.loads(found.to_json()), "signed_by": signed.signed_by.hex()}
    document |= {"ok": found.ok and own is None, "hub_identity_known": own is None}
    blame, why = f"{len(found.faults)} faults", ""
    if found.ok and own is not None:
        why = f"the log is {own_identity('the log', own)}"
        document |= {"code": "UNPROVEN", "detail": why}
    if not found.ok:
        first = found.faults[0]
        blame = f"{blame}, the first in {first.file} at byte {first.offset}"
        document |= {"code": "FAULTS", "detail": blame}
    lines = [
        f"FAULT {one.file} at byte {one.offset}: {one.what} [{one.code}]"
        for one in found.faults[:_SHOWN_FAULTS]
    ]
    counts = f"{found.entries} entries in {found.chunks} chunks of {found.labels} labels"
    lines += [*found.notes, f"{counts}, {found.checkpoints} checkpoints: {blame}"]
    show(document, "\n".join([*lines, f"signed_by: {signed.signed_by.hex()}"]))
    if not found.ok and manner().json:
        raise typer.Exit(INTEGRITY)
    if not found.ok:
        raise Untrusted(blame)
    if why:
        end_unproven(why)
