"""Entry point of the HTTP workers of a hub: ``python -m hub.web``, started by the supervisor."""

from __future__ import annotations

import sys

from hub.supervisor import begin_as_child, parse_launch
from hub.web.application import HubApplication
from veen.system.asgi_server import event_options
from veen.system.http_server import ServiceApplication


def main(arguments: list[str]) -> int:
    launch = parse_launch(arguments)
    begin_as_child(launch)
    settings = launch.settings()
    ServiceApplication(
        settings,
        lambda: HubApplication(settings, launch.datadir),
        options=event_options(settings),
    ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
