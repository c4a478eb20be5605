"""The audit of a log in one thread, which is one core: full, and without entry signatures.

The log is one that a committer wrote; its bytes are in memory, so that the disk has no part, and
what counts is the time of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import bare
import inside
import sample
from measure import Measurement, compare_timed

from hub.admission import VerifiedMsg
from hub.storage.datadir import DataDir
from veen.audit.context import Context, Depth, begin, take_inventory
from veen.audit.engine import AuditedLog, audit_log, in_order
from veen.audit.trust import TrustCheck

ENTRIES = 2_048
GROUP = 256
WRITERS = 8
ROUNDS = 9
VERIFICATIONS = 2
Files = dict[str, bytes]


def measure() -> Iterator[Measurement]:
    files = _files()
    full = partial(_audit, files, _context(files, Depth.FULL))
    audit = compare_timed(full, _bare_verifications, rounds=ROUNDS)
    yield Measurement(
        bench="audit_full",
        value=1 / audit.seconds,
        unit="events/s",
        against="rate of two bare Ed25519 verifications",
        ratio=1 / audit.ratio,
        at_least=0.7,
    )
    hashes = partial(_audit, files, _context(files, Depth.HASHES))
    without = compare_timed(hashes, _bare_verifications, rounds=ROUNDS)
    yield Measurement(
        bench="audit_hashes_only",
        value=1 / without.seconds,
        unit="events/s",
        against="rate of two bare Ed25519 verifications",
        ratio=1 / without.ratio,
        at_least=3,
    )


def _bare_verifications() -> float:
    """Seconds of the two signatures that each entry has."""
    begun = time.process_time()
    bare.verify(ENTRIES)
    return VERIFICATIONS * (time.process_time() - begun) / ENTRIES


def _audit(files: Files, context: Context) -> float:
    """Seconds of the audit of one entry."""
    names = (name for name in files if name.startswith("log/"))
    log = AuditedLog(inventory=take_inventory(names), read=files.get)
    begun = time.process_time()
    result = audit_log(log, context, in_order(files.get))
    seconds = time.process_time() - begun
    report = result.report((), (), ())
    if not report.ok or report.entries != ENTRIES + WRITERS:
        raise AssertionError(f"{len(report.faults)} faults in {report.entries} entries")
    return seconds / report.entries


def _context(files: Files, depth: Depth) -> Context:
    hub = TrustCheck().read_hub(files.get)
    return begin(hub=hub, limits=sample.LIMITS, profiles=(), streams=(), depth=depth)


def _files() -> Files:
    """A log of entries with 512 bytes of payload, under capabilities, from several clients."""
    with inside.directory() as datadir:
        with inside.committing(datadir) as committer:
            writers = inside.writers(committer, WRITERS)
            for _ in range(ENTRIES // GROUP):
                messages = [msg for writer in writers for msg in writer.write(GROUP // WRITERS)]
                committer.commit([VerifiedMsg.of(msg) for msg in messages], inside.CLOCK)
        return _read(datadir)


def _read(datadir: DataDir) -> Files:
    result = [*datadir.root.glob("*.*"), *datadir.log.iterdir()]
    return {str(path.relative_to(datadir.root)): path.read_bytes() for path in result}
