"""The words of every command that these DAGs run, from what the zone's file says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from veen_made import Refusal

from recorder.zone import StorageSettings, Zone


class NoStorage(Refusal):
    """A zone without [storage] has no archive."""


def acting(of: Zone) -> list[str]:
    """The settings, and who acts."""
    found, who = ["--config", str(of.file)], of.dags.acting
    if who.client is not None:
        found += ["--client", str(who.client)]
    if who.principal is not None:
        found += ["--principal", who.principal]
    if who.passphrase_file is not None:
        found += ["--passphrase-file", str(who.passphrase_file)]
    return found


def storage(of: Zone) -> StorageSettings:
    if of.storage is None:
        raise NoStorage(f"{of.file} has no [storage]: there is no archive to work with")
    return of.storage


def store(of: Zone) -> list[str]:
    return [*storage(of).options(), "--hub-id", of.hub_id.hex()]


def data_dir(of: Zone) -> list[str]:
    return ["--data-dir", str(of.hub_data)]


def checkpoint_create(of: Zone) -> list[str]:
    return ["recorder", "checkpoint", "create", *acting(of)]


def checkpoint_verify(of: Zone) -> list[str]:
    return ["recorder", "checkpoint", "verify", *acting(of)]


def anchor_publish(of: Zone) -> list[str]:
    return ["anchor", "publish", "--config", str(of.file)]


def anchor_list(of: Zone) -> list[str]:
    return ["anchor", "list", "--config", str(of.file)]


def archive_push(of: Zone) -> list[str]:
    """Keys are sealed where they are at hand; elsewhere what was sealed before stays."""
    escrow = of.dags.acting.escrow
    has_keys = any((of.hub_data / "keys").glob("*.key"))
    sealed = ["--escrow", str(escrow)] if escrow is not None and has_keys else []
    return ["archive", "push", *data_dir(of), *store(of), *sealed]


def hub_identity(of: Zone) -> list[str]:
    """What the hub itself says of its keys: an archive is not judged by its own word alone."""
    return ["--hub-identity", str(of.hub_data)]


def archive_verify(of: Zone) -> list[str]:
    return ["archive", "verify", *store(of), *hub_identity(of)]


def audit_terms(of: Zone, out: Path) -> list[str]:
    return ["audit", "terms", "--config", str(of.file), "--out", str(out)]


def record_file(of: Zone, file: Path, origin: str) -> list[str]:
    """Each line is recorded once, however often this is run or killed."""
    capability = of.dags.acting.capability
    cap = [] if capability is None else ["--cap", str(capability)]
    named = ["--type", "audit.report", "--subject", f"zone:{of.name}", "--origin", origin]
    fields = ["--payload-field", "payload"]
    return ["recorder", "tail", str(file), "--once", *acting(of), *cap, *named, *fields]


def snapshot(of: Zone, verb: str, stream: str, reader: Sequence[str], file: Path) -> list[str]:
    """``verb`` is create or verify; ``reader`` says who opens the events."""
    place = ["--out", str(file)] if verb == "create" else ["--snapshot", str(file)]
    overlay = ["--overlay", of.dags.fold.overlay]
    return ["snapshot", verb, *store(of), "--stream", stream, *reader, *overlay, *place]


def bridge_export(of: Zone, asked: dict[str, object], operator: str) -> list[str]:
    """``asked`` are the params of the DAG."""
    found = ["bridge", "export", "--config", str(of.file), "--medium", str(asked["medium"])]
    found += ["--operator", operator, "--discard-unfinished"]
    if asked.get("medium_id"):
        found += ["--medium-id", str(asked["medium_id"])]
    ranges = asked.get("ranges")
    for one in ranges if isinstance(ranges, list) else ():
        found += ["--range", str(one)]
    if asked.get("gap_file"):
        found += ["--from-gap-file", str(asked["gap_file"])]
    return [*found, "--heartbeat"] if asked.get("heartbeat") else found


def bridge_verify(places: Sequence[str], level: Sequence[str], transcript: Path) -> list[str]:
    return ["bridge", "verify", *places, *level, "--transcript", str(transcript)]


def bridge_reconcile(of: Zone, out: Path) -> list[str]:
    return ["bridge", "reconcile", "--config", str(of.file), *report_files(out)]


def report_files(out: Path) -> list[str]:
    """Everything that a reconciliation writes stands beside ``out``."""
    files = ["--out", str(out), "--svg", str(out.with_suffix(".svg"))]
    return [*files, "--gaps", str(out.parent / "gaps")]


def hub_start(of: Zone) -> list[str]:
    return ["hub", "start", *data_dir(of), "--config", str(of.file)]


def hub_verify(of: Zone) -> list[str]:
    return ["hub", "verify", *data_dir(of), "--config", str(of.file)]


def retention(of: Zone) -> list[str]:
    return ["hub", "retention", *data_dir(of), "--config", str(of.file)]
