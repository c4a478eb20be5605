"""A fold as Spark tasks: each makes a whole node of the tree, and the driver merges them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from recorder.archive.store import HubArchive
from recorder.folds.job import FoldJob, FoldResult, carry_out
from recorder.folds.parallel import Made, PreparedSource, height_for, make, plan
from recorder.folds.reader import FoldReader
from recorder.folds.source import ArchiveSource
from spark_jobs.signer import identity_in
from spark_jobs.store_door import StoreDoor
from veen.errors import Untrusted
from veen.limits import Limits
from veen.overlay.tree import Node
from veen.profile import Profile

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where every host finds the archive and the reader's keys; only names of them travel."""

    door: StoreDoor
    client: Path
    passphrase_file: Path | None = None
    profile: Profile

    def reader(self) -> FoldReader:
        identity = identity_in(self.client, self.passphrase_file)
        return FoldReader(identity.readers(), self.profile, Limits())

    def archive(self, hub_id: bytes) -> HubArchive:
        keeps = self.door.keeps_conditions is not None
        return HubArchive(self.door.to_put() if keeps else self.door.to_read(), hub_id)

    def ready_to_keep(self) -> Site:
        """The same once the store was seen to keep what folds put there."""
        return replace(self, door=self.door.probed())


@lru_cache(maxsize=4)
def source_at(site: Site, job: FoldJob) -> ArchiveSource:
    """What a process folds from: once for all its tasks of a job."""
    return job.source(site.archive(job.hub_id), site.reader())


def make_at(site: Site, job: FoldJob, reader: bytes, node: Node) -> Made:
    if site.reader().scope() != reader:
        raise Untrusted(f"{site.client} has other keys on this host than where the job began")
    return make(job, source_at(site, job), node)


def fold_on(spark: SparkContext, site: Site, job: FoldJob, partitions: int = 0) -> FoldResult:
    """The result of a job, whatever the number of tasks; 0 is one for each node that is due."""
    if job.keeps_summaries:
        site = site.ready_to_keep()
    source = job.source(site.archive(job.hub_id), site.reader())
    found = plan(job, source, height_for(job, spark.defaultParallelism))
    made: list[Made] = []
    if found.due:
        work = partial(make_at, site, job, site.reader().scope())
        slices = min(partitions or len(found.due), len(found.due))
        made = spark.parallelize(found.due, slices).map(work).collect()
    return carry_out(job, PreparedSource(source, found, made))
