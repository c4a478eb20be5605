"""Entry point of the sequencer: ``python -m hub.sequencer``, started by the supervisor."""

from __future__ import annotations

import os
import signal
import sys

from prometheus_client import CollectorRegistry

from hub.metrics import sequencer_metrics
from hub.sequencer.service import Sequencer
from hub.supervisor import begin_as_child, clear_metrics, parse_launch
from veen.errors import VeenError
from veen.system.child_process import EXIT_REFUSED


def main(arguments: list[str]) -> int:
    launch = parse_launch(arguments)
    begin_as_child(launch)
    try:
        sequencer = Sequencer(launch.datadir, launch.settings(), os.urandom)
    except VeenError as error:
        print(f"veen hub: {error}", file=sys.stderr)  # noqa: T201 - the operator's only channel
        return EXIT_REFUSED
    clear_metrics(launch.datadir)
    metrics = sequencer_metrics(CollectorRegistry())
    sequencer.observe(metrics)
    sequencer.observe_clock(metrics.clock_read)
    signal.signal(signal.SIGTERM, lambda *_: sequencer.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launch.say_ready()
    sequencer.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
