"""Write the golden files and the README's help again: python tests/golden/make_golden.py [OPTION]

With --help-only, only the README; with --only-self_tests, --only-recorder, --only-bridge or
--only-zones, the README and the golden files of that part.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
# This folder has a cli/, which would hide the package of that name.
sys.path.remove(str(Path(__file__).parent))

from support.cli.cli_binary import veen
from support.cli.cli_scenario import forms
from support.paths import ROOT

GOLDEN = Path(__file__).parent / "cli"
README = ROOT / "README.md"
_SHOWN = re.compile(r"^    Usage: veen \[OPTIONS\].*?(?=^## )", re.MULTILINE | re.DOTALL)


def write_help() -> None:
    lines = veen("--help", cwd=Path("/")).out.splitlines()
    shown = "".join(f"    {line}\n" if line else "\n" for line in lines)
    text, result = _SHOWN.subn(lambda _: f"{shown}\n", README.read_text())
    assert result == 1
    README.write_text(text)


def write_golden(only: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        worlds = dict(forms(Path(folder)))
        with ThreadPoolExecutor(len(worlds)) as pool:
            shown = list(pool.map(lambda world: world.run(only), worlds.values()))
        for (form, world), result in zip(worlds.items(), shown, strict=True):
            if only is None:
                shutil.rmtree(GOLDEN / form, ignore_errors=True)
            (GOLDEN / form).mkdir(parents=True, exist_ok=True)
            for item in result:
                (GOLDEN / form / f"{item.name}.txt").write_text(item.text(world.folder))
            print(form, len(result))


if __name__ == "__main__":
    write_help()
    parts = [item.removeprefix("--only-") for item in sys.argv if item.startswith("--only-")]
    if "--help-only" not in sys.argv:
        chosen: list[str | None] = [*parts] or [None]
        for part in chosen:
            write_golden(part)
