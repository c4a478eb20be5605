"""H12: every process of the query service keeps its log within the size that is set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

EXAMPLE = ROOT / "docs" / "recorder.example.toml"
_PROCESS = """
import logging, sys
from pathlib import Path
from recorder.service.supervisor import ServiceLaunch, begin
begin(ServiceLaunch(Path(sys.argv[1])))
for number in range(300):
    logging.getLogger("service").info("line %d", number)
raise RuntimeError("the end")
"""


def test_h12_a_process_of_the_service_rotates_its_log(tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    text = text.replace("log_max_bytes = 16777216 ", "log_max_bytes = 4000 ")
    config, log = tmp_path / "recorder.toml", tmp_path / "service.log"
    config.write_text(text.replace("log_backups = 3 ", "log_backups = 1 "))
    with log.open("ab") as file:
        done = subprocess.run(
            [sys.executable, "-c", _PROCESS, config], stdout=file, stderr=file, check=False
        )
    assert done.returncode == 1
    files = sorted(tmp_path.glob("service.log*"))
    assert [file.name for file in files] == ["service.log", "service.log.1"]
    assert all(file.stat().st_size < 8_000 for file in files)
    assert "RuntimeError: the end" in log.read_text(), "an uncaught error is not in the log"
