"""A replay in a process of its own, with small pages and a sync a record, so that it can be killed.

replaying_process.py URL CLIENT CHECKPOINT OUT FORM
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from recorder.replay import output
from recorder.replay.job import Job
from recorder.replay.plan import HubSource, by_time
from veen.client.client import Client
from veen.recorder_checkpoint import RecorderCheckpoint

STREAMS = ("record/a", "record/b")


def main(url: str, client: str, checkpoint: str, out: str, form: str) -> None:
    chosen = RecorderCheckpoint.decode(Path(checkpoint).read_bytes())
    with Client.open(Path(client), url) as reader:
        Job(
            source=HubSource(reader, page_items=3),
            requested=lambda _: by_time(STREAMS, None, None, with_proofs=True),
            latest=lambda: chosen,
            progress=lambda *_: time.sleep(0.01),
            block_bytes=1,
        ).to_file(Path(out), output.form_named(form), resume=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
