"""The HTTP workers of a query service as a process: ``python -m recorder.api``."""

from __future__ import annotations

import sys

from recorder.api.app import create_app
from recorder.service.supervisor import begin_as_child, parse_launch
from veen.system.http_server import ServiceApplication


def main(arguments: list[str]) -> int:
    launch = parse_launch(arguments)
    begin_as_child(launch)
    settings = launch.settings()
    ServiceApplication(settings.query, lambda: create_app(settings), launch.say_ready).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
