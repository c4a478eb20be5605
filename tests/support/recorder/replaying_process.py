"""A replay in a process of its own, with small pages and a sync a record, so that it can be killed.

replaying_process.py URL CLIENT CHECKPOINT OUT FORM
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from recorder.replay import output, plan
from recorder.replay.job import Job
from recorder.replay.plan import by_time
from veen.client.client import Client
from veen.recorder_checkpoint import RecorderCheckpoint

STREAMS = ("record/a", "record/b")


class Slow(output.FileSink):
    def put(self, record: output.Record) -> None:
        super().put(record)
        time.sleep(0.01)


def main(url: str, client: str, checkpoint: str, out: str, form: str) -> None:
    made = plan.LabelRange
    plan.LabelRange = lambda **more: made(page_items=3, **more)  # type: ignore[misc,assignment]
    output._BLOCK = 1  # type: ignore[misc]
    import recorder.replay.job as job  # noqa: PLC0415, PLR0402

    job.FileSink = Slow  # type: ignore[misc]
    chosen = RecorderCheckpoint.decode(Path(checkpoint).read_bytes())
    with Client.open(Path(client), url) as reader:
        Job(
            source=plan.HubSource(reader),
            requested=lambda _: by_time(STREAMS, None, None, with_proofs=True),
            latest=lambda: chosen,
        ).to_file(Path(out), output.form_named(form), resume=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
