"""Entry point of the HTTP workers of a hub: ``python -m hub.web``, started by the supervisor."""

from __future__ import annotations

import sys

from hub.api.app import create_app
from hub.supervisor import begin_as_child, parse_launch
from veen.system.http_server import ServiceApplication


def main(arguments: list[str]) -> int:
    launch = parse_launch(arguments)
    begin_as_child(launch)
    settings = launch.settings()
    ServiceApplication(settings, lambda: create_app(settings, launch.datadir)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
