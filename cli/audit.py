"""``veen audit``: the audit of a whole log, here or as a Spark job, with a signed report."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.console import global_options, progress, show
from cli.errors import INTEGRITY, OK, UNPROVEN
from cli.hub_checkpoint import KnownHubOptions, end_unproven, own_identity
from cli.options import ConfigOption, HubIdOption, PassphraseFileOption, key_in_hex, passphrase_of
from cli.store_options import (
    AddressingOption,
    ConfOption,
    EndpointOption,
    RegionOption,
    Submission,
    submit,
)
from hub.settings import load
from hub.storage.datadir import DataDir, DataDirLock
from hub.storage.relearn import acknowledged
from recorder.archive.audit import AuditTerms
from recorder.archive.log_files import LogInventory, in_archive, in_directory
from recorder.archive.store import hubs
from spark_jobs.session import identity_with
from spark_jobs.verify_log import Known, audit, here
from veen.audit.context import Depth
from veen.audit.report import AuditReport, SignedAuditReport
from veen.audit.trust import TrustCheck
from veen.crypto import SigningKey
from veen.errors import Refused, Untrusted
from veen.hub_identity import HubIdentity
from veen.keystore.directory import ClientDir
from veen.objects.port import StoreLocation
from veen.objects.store import StoreRef
from veen.system import durable
from veen.system.environment import ProgressCounter

app = typer.Typer(help="Audit a whole log, and sign the report.", no_args_is_help=True)

_SHOWN_FAULTS: Final = 20


class AuditEngine(Enum):
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The location of the log: a store, or the directory of a stopped hub."""

    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="file:///path or s3://bucket/prefix."),
    ] = None
    hub_id: HubIdOption = None
    endpoint: EndpointOption = None
    region: RegionOption = "us-east-1"
    addressing: AddressingOption = "auto"
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Data directory of a hub.")
    ] = None
    config: ConfigOption = None

    @contextmanager
    def opened(self) -> Iterator[tuple[list[str], LogInventory, AuditTerms]]:
        """The location as arguments of the job, the inventory of the log, and the terms."""
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
        location = StoreLocation(
            url=self.store or "",
            endpoint=self.endpoint,
            region=self.region,
            addressing=self.addressing,
        )
        services = StoreRef(location.settings())
        hub_id = self._hub(services)
        terms = AuditTerms(limits=settings.limits, streams=settings.streams)
        where = [*location.arguments(), "--hub-id", hub_id.hex()]
        yield where, in_archive(services, hub_id), terms

    def _hub(self, services: StoreRef) -> bytes:
        """The given hub, or the only one in the store."""
        if self.hub_id is not None:
            return key_in_hex("--hub-id", self.hub_id)
        hub_ids = list(hubs(services.to_read()))
        if len(hub_ids) != 1:
            names = ", ".join(item.hex() for item in hub_ids) or "none"
            raise typer.BadParameter(f"name the hub with --hub-id; {self.store} holds: {names}")
        return hub_ids[0]


@contextmanager
def _held(datadir: DataDir) -> Iterator[DataDir]:
    """The directory, locked against a hub."""
    if not datadir.log.is_dir():
        raise Refused(f"{datadir.root} is not a data directory: it has no log")
    lock = DataDirLock(datadir)
    try:
        yield datadir
    finally:
        lock.release()


@app.command()
def log(
    at: LogOptions,
    known: KnownHubOptions,
    engine: Annotated[
        AuditEngine, typer.Option("--engine", help="Run in this process, or as a Spark job.")
    ] = AuditEngine.LOCAL,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="Spark master.")
    ] = "local[*]",
    conf: ConfOption = None,
    hashes_only: Annotated[
        bool, typer.Option("--hashes-only", help="Skip the signatures of entries.")
    ] = False,
    sign_with: Annotated[
        Path | None,
        typer.Option("--sign-with", metavar="CLIENT", help="Signing identity; default: a new key."),
    ] = None,
    passphrase_file: PassphraseFileOption = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the report to this file.")
    ] = None,
) -> None:
    """Verify every byte of a log against the signatures of its hub; sign a report.

    Exits with 3 if anything is wrong, and names the first bad byte. Without --hub-identity or
    --known-hubs the log is verified with the identity stored beside it, and the result is unproven
    (exit code 6): a key that it calls current may have been retired.

    Example: veen audit log --store file:///mnt/archive --hub-identity hub.cbor --report audit.json
    """
    passphrase = _passphrase(sign_with, passphrase_file)
    with at.opened() as (where, inventory, terms):
        own = TrustCheck().read_hub(inventory.files.read)
        newest = known.newest(own.hub_id)
        if engine is AuditEngine.SPARK:
            flags = [*where, *(["--hashes-only"] if hashes_only else []), *_signer(sign_with)]
            flags += known.words()
            job = Submission("verify_log", master, tuple(flags), "--report", tuple(conf or ()))
            signed = _on_spark(job, terms, passphrase)
        else:
            depth = Depth.HASHES if hashes_only else Depth.FULL
            done = _here(inventory, terms, depth, lambda _hub_id: newest)
            signed = done.signed(_key(sign_with, passphrase))
    if report is not None:
        durable.write(report, signed.to_json())
    _show(signed, None if newest else own)


@app.command()
def terms(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output file.")],
    config: ConfigOption = None,
) -> None:
    """Write the parameters of an audit, for a job that is submitted separately.

    These are the limits and streams of the settings of the hub, for the option --terms of
    spark_jobs/verify_log.py and spark_jobs/events_table.py.

    Example: veen audit terms --config hub.toml --out terms.json
    """
    settings = load(config)
    audit_terms = AuditTerms(limits=settings.limits, streams=settings.streams)
    durable.write(out.absolute(), audit_terms.to_json())
    show({"out": str(out), "streams": len(audit_terms.streams)})


def _here(inventory: LogInventory, terms: AuditTerms, depth: Depth, known: Known) -> AuditReport:
    chunks = sum(len(label.segments()) for label in inventory.log().inventory.labels.values())
    with progress("audit", "chunks") as report:
        counter = ProgressCounter(chunks, report)
        pool = here(inventory.files)
        return audit(inventory, terms, depth, pool, lambda _chunk: counter.add(), known)


def _on_spark(job: Submission, terms: AuditTerms, passphrase: bytes | None) -> SignedAuditReport:
    with tempfile.TemporaryDirectory(prefix="veen-audit-") as folder:
        path = Path(folder) / "terms.json"
        path.write_bytes(terms.to_json())
        detail = replace(job, arguments=(*job.arguments, "--terms", str(path)))
        signed = SignedAuditReport.from_json(
            submit(detail, passphrase, accept=(OK, INTEGRITY, UNPROVEN))
        )
    signed.verify(signed.signed_by)
    return signed


def _signer(sign_with: Path | None) -> list[str]:
    return [] if sign_with is None else ["--sign-with", str(sign_with.absolute())]


def _passphrase(sign_with: Path | None, file: Path | None) -> bytes | None:
    return None if sign_with is None else passphrase_of(ClientDir(sign_with.absolute()), file)


def _key(sign_with: Path | None, passphrase: bytes | None) -> SigningKey:
    if sign_with is None:
        return SigningKey(os.urandom(32))
    return identity_with(sign_with.absolute(), passphrase).client


def _show(signed: SignedAuditReport, own: HubIdentity | None) -> None:
    """Show a report; ``own`` is the log's own identity if no other is known."""
    report = signed.report
    document = {**json.loads(report.to_json()), "signed_by": signed.signed_by.hex()}
    document |= {"ok": report.ok and own is None, "hub_identity_known": own is None}
    blame, why = f"{len(report.faults)} faults", ""
    if report.ok and own is not None:
        why = f"the log is {own_identity('the log', own)}"
        document |= {"code": "UNPROVEN", "detail": why}
    if not report.ok:
        first = report.faults[0]
        blame = f"{blame}, the first in {first.file} at byte {first.offset}"
        document |= {"code": "FAULTS", "detail": blame}
    lines = [
        f"FAULT {fault.file} at byte {fault.offset}: {fault.what} [{fault.code}]"
        for fault in report.faults[:_SHOWN_FAULTS]
    ]
    counts = f"{report.entries} entries in {report.chunks} chunks of {report.labels} labels"
    lines += [*report.notes, f"{counts}, {report.checkpoints} checkpoints: {blame}"]
    show(document, "\n".join([*lines, f"signed_by: {signed.signed_by.hex()}"]))
    if not report.ok and global_options().json:
        raise typer.Exit(INTEGRITY)
    if not report.ok:
        raise Untrusted(blame)
    if why:
        end_unproven(why)
