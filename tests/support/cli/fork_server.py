"""A process that has loaded every command: each that is asked for runs in a fork of it.

The command is a process with its own words, folder, environment and streams, as if it had been
started by itself; only the loading, which is most of the time of a short one, is done once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from importlib import import_module

from cli import table
from cli.main import main

LARGEST = 1 << 20


def serve(services: socket.socket) -> None:
    """One request is one connection; it is answered with the exit code, or by a kill."""
    for function in table.functions():
        import_module(function.partition(":")[0])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        asked, _ = services.accept()
        if os.fork() == 0:
            services.close()
            asked.sendall(str(run(asked)).encode())
            os._exit(0)
        asked.close()


def run(asked: socket.socket) -> int:
    raw, streams, _, _ = socket.recv_fds(asked, LARGEST, 3)
    request = json.loads(raw)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["veen", *request["words"]]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 70


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
