"""Breaks things in the processes of a run, as VEEN_MUTANT says; Python loads it at its start."""

import os
import sys


def process() -> str:
    """Which one this is: one of a hub or of a query service, or the program that started it."""
    words = sys.orig_argv
    return words[words.index("-m") + 1] if "-m" in words else "client"


if "VEEN_MUTANT" in os.environ:
    from support.selftest.mutants import (
        bridge_mutants,
        local_mutants,
        recorder_mutants,
        sequencer_mutants,
        web_mutants,
    )

    mutants = {
        "hub.web": web_mutants.MUTANTS,
        "hub.sequencer": sequencer_mutants.MUTANTS,
        "recorder.service": recorder_mutants.SERVICE,
        "recorder.api": recorder_mutants.API,
        "client": {**local_mutants.MUTANTS, **recorder_mutants.LOCAL, **bridge_mutants.LOCAL},
    }
    for name in os.environ["VEEN_MUTANT"].split("|"):
        if name in mutants.get(process(), {}):
            mutants[process()][name]()
