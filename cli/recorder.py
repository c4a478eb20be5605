"""``veen recorder``: record events, follow logs, and manage the recorder's streams."""

from __future__ import annotations

from cli.conventions import group_of

app = group_of(
    "Record who did what, when and where, with proofs.",
    {
        "emit": "cli.recorder_emit:emit",
        "tail": "cli.recorder_emit:tail",
        "streams": "cli.recorder_streams:streams",
        "migrate": "cli.recorder_streams:migrate_app",
        "config": "cli.recorder_streams:config",
        "checkpoint": "cli.checkpoint:app",
        "replay": "cli.recorder_replay:replay",
        "index": "cli.recorder_index:app",
        "serve": "cli.recorder_serve:serve",
    },
)
