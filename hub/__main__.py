"""Entry point of a whole hub: ``python -m hub``, which ``veen hub start`` runs."""

import sys

from hub.supervisor import begin, parse_launch, run

if __name__ == "__main__":
    launch = parse_launch(sys.argv[1:])
    begin(launch)
    sys.exit(run(launch))
