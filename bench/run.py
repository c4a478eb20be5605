"""Run the benchmarks and print one JSON line for each measurement.

python bench/run.py                      all of them
python bench/run.py veen_msg veen_mmr    only these
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

PARTS = ("veen", "cli", "hub", "client", "spark", "folds", "query", "index", "bridge", "recorder")


def main() -> None:
    here = Path(__file__).parent
    known = sorted(path.stem for part in PARTS for path in here.glob(f"{part}_*.py"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    expected = parser.parse_args().names or known
    unknown = sorted(set(expected) - set(known))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(known)}")
    for name in expected:
        for measurement in importlib.import_module(name).measure():
            print(measurement.to_json(), flush=True)


if __name__ == "__main__":
    main()
