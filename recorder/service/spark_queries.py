"""Queries on Spark as the runner sees them: each speaks up to a checkpoint that is chosen once."""

from __future__ import annotations

from recorder.query.descriptor import Descriptor
from recorder.query.digest import ResultDigest
from recorder.service.archived import ArchivedCheckpoints
from recorder.service.spark_engine import SparkEngine


class SparkQueries:
    def __init__(self, engine: SparkEngine, archived: ArchivedCheckpoints) -> None:
        self._engine = engine
        self._archived = archived

    def run(self, descriptor: Descriptor, result_id: str) -> ResultDigest:
        """After a restart the checkpoint is that of the run before, whose job may be going on."""
        checkpoint = self._engine.begun(result_id) or self._archived.latest(descriptor)
        return self._engine.run(descriptor, result_id, checkpoint)

    def stop(self) -> None:
        self._engine.stop()
