"""The Flask application of a hub under gunicorn's threads, beside the hub's own HTTP workers.

``python -m support.hub.threaded_edge DATA_DIR CONFIG LISTEN`` serves the same directory through
the same sequencer, so that both edges can be asked the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hub.api.app import create_app
from hub.settings import load, with_options
from hub.storage.datadir import DataDir
from veen.system.http_server import ServiceApplication


def main(data: str, config: str, listen: str) -> None:
    settings = with_options(load(Path(config)), {"listen": listen, "workers": 1})
    ServiceApplication(settings, lambda: create_app(settings, DataDir(Path(data)))).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
